// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/micro_batches.h"

#include <cstdint>

namespace castor {

std::vector<bool> InLastMicroBatch(const Trace& trace, size_t chunks) {
  std::vector<int64_t> micro_batch;     // by moment
  std::vector<int64_t> opened(chunks);  // by ChunkId, in which, from 1
  int64_t now = 1;
  for (const Access& access : trace) {
    if (access.kind == AccessKind::kGradOpen) {
      int64_t& last = opened[access.chunk.index()];
      now += last == now;
      last = now;
    }
    micro_batch.push_back(now);
  }
  std::vector<bool> in_last;
  in_last.reserve(trace.size());
  for (const int64_t each : micro_batch) in_last.push_back(each == now);
  return in_last;
}

}  // namespace castor
