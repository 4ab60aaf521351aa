// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/reduction_turns.h"

#include <algorithm>

namespace castor {

ReductionTurns::ReductionTurns(const ChunkLayout& layout,
                               const std::vector<bool>& had)
    : complete_(layout.chunks().size(), false),
      missed_(layout.chunks().size(), false) {
  for (size_t c = layout.chunks().size(); c-- > 0;) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const auto group = static_cast<size_t>(layout.chunk(chunk).group);
    if (layout.groups()[group].trainable) order_.push_back(chunk);
  }
  if (!had.empty()) {
    std::stable_partition(order_.begin(), order_.end(), [&](ChunkId chunk) {
      const std::vector<ParamId>& params = layout.chunk(chunk).params;
      return std::any_of(params.begin(), params.end(),
                         [&](ParamId id) { return had[id.index()]; });
    });
  }
  BeginMicroBatch();
}

void ReductionTurns::BeginMicroBatch() {
  turns_ = order_;
  turn_ = 0;
  completed_.clear();
  std::fill(complete_.begin(), complete_.end(), false);
}

void ReductionTurns::Complete(ChunkId chunk) {
  complete_[chunk.index()] = true;
  completed_.push_back(chunk);
}

std::optional<ChunkId> ReductionTurns::TakeNext() {
  if (turn_ == turns_.size() || !complete(turns_[turn_])) return std::nullopt;
  return turns_[turn_++];
}

std::optional<ChunkId> ReductionTurns::Awaited() const {
  if (turn_ == turns_.size()) return std::nullopt;
  return turns_[turn_];
}

bool ReductionTurns::LetPass() {
  const auto left = turns_.begin() + static_cast<std::ptrdiff_t>(turn_);
  return left != std::stable_partition(left, turns_.end(), [&](ChunkId chunk) {
           return complete(chunk);
         });
}

std::vector<ChunkId> ReductionTurns::Proposed() const {
  std::vector<ChunkId> order = order_;
  const auto often =
      std::stable_partition(order.begin(), order.end(), [&](ChunkId chunk) {
        return complete(chunk) || !missed_[chunk.index()];
      });
  auto next = completed_.begin();
  for (auto place = order.begin(); place != often; ++place) {
    if (complete(*place)) *place = *next++;
  }
  return order;
}

void ReductionTurns::Adopt(std::vector<ChunkId> order) {
  order_ = std::move(order);
  for (const ChunkId chunk : order_) {
    missed_[chunk.index()] = !complete(chunk);
  }
}

}  // namespace castor
