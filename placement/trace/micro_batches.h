// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_MICRO_BATCHES_H_
#define CASTOR_PLACEMENT_TRACE_MICRO_BATCHES_H_

// Where the micro-batches of a step begin, which a trace does not say. The next
// one begins, at the latest, where a gradient opens that was open in this one
// before; the sweep forward to that gradient is its own. Pure function,
// thread-safe. Part of the traces (trace.h).

#include <cstddef>
#include <vector>

#include "placement/trace.h"

namespace castor {

// By rising moments, of which the first is 0. `lacks`: by ChunkId, that some
// parameter of the chunk has no gradient; such a chunk is reduced where a
// micro-batch ends.
std::vector<size_t> MicroBatchBegins(const Trace& trace,
                                     const std::vector<bool>& lacks);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_MICRO_BATCHES_H_
