// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_MICRO_BATCHES_H_
#define CASTOR_PLACEMENT_TRACE_MICRO_BATCHES_H_

// Which moments of a step lie in its last micro-batch, where gradients become
// complete. Pure function, thread-safe. Part of the traces (trace.h).

#include <cstddef>
#include <vector>

#include "placement/trace.h"

namespace castor {

// By moment of a step of `chunks` chunks. A trace does not say where a
// micro-batch begins. The next one begins, at the latest, where a gradient
// opens that was open in this one before.
std::vector<bool> InLastMicroBatch(const Trace& trace, size_t chunks);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_MICRO_BATCHES_H_
