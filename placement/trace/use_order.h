// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_USE_ORDER_H_
#define CASTOR_PLACEMENT_TRACE_USE_ORDER_H_

// In which order a step uses its chunks first. An optimizer that updates them
// in it lets the next forward follow close behind. Pure function, thread-safe.
// Part of the traces (trace.h).

#include <cstddef>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/trace.h"

namespace castor {

// All `chunks` chunks: first those that the trace uses, by their first use,
// then the others, by number.
std::vector<ChunkId> OrderOfFirstUses(const Trace& trace, size_t chunks);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_USE_ORDER_H_
