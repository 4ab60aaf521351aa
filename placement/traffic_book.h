// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRAFFIC_BOOK_H_
#define CASTOR_PLACEMENT_TRAFFIC_BOOK_H_

// What a rank asks for, chunk by chunk, counted where the rank asks for it: a
// transfer that has not begun counts, one that was taken back does not. Owner
// thread only. Part of a step's traffic (step_traffic.h).

#include <cstddef>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/step_traffic.h"

namespace castor {

class TrafficBook {
 public:
  // Of a chunk; the invalid id stands for what is of none.
  StepTraffic& Of(ChunkId chunk) {
    if (!chunk.valid()) return other_;
    if (chunk.index() >= chunks_.size()) chunks_.resize(chunk.index() + 1);
    return chunks_[chunk.index()];
  }
  // What was counted since the last call, or the start: by ChunkId, for so many
  // chunks, and in `all` together with what is of no chunk. REQUIRES: there are
  // as many.
  std::vector<StepTraffic> Take(size_t chunks, StepTraffic* all) {
    chunks_.resize(chunks);
    std::vector<StepTraffic> taken = std::exchange(chunks_, {});
    *all = std::exchange(other_, {});
    for (const StepTraffic& of_chunk : taken) *all += of_chunk;
    return taken;
  }

 private:
  std::vector<StepTraffic> chunks_;  // by ChunkId
  StepTraffic other_;
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRAFFIC_BOOK_H_
