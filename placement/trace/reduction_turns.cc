// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/reduction_turns.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace castor {
namespace {

// Of the chunks from `first` on, those that `ahead` holds for come before the
// others, both in the order in which they were. Returns where the others
// begin. As std::stable_partition, which clang refuses for what it allocates.
template <typename Predicate>
size_t PutAhead(std::vector<ChunkId>& chunks, size_t first, Predicate ahead) {
  const auto begin = chunks.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<ChunkId> others;
  std::copy_if(begin, chunks.end(), std::back_inserter(others),
               [&](ChunkId chunk) { return !ahead(chunk); });
  const auto end = std::remove_if(begin, chunks.end(),
                                  [&](ChunkId chunk) { return !ahead(chunk); });
  std::copy(others.begin(), others.end(), end);
  return static_cast<size_t>(end - chunks.begin());
}

}  // namespace

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
    PutAhead(order_, 0, [&](ChunkId chunk) {
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
  return turn_ != PutAhead(turns_, turn_,
                           [&](ChunkId chunk) { return complete(chunk); });
}

std::vector<ChunkId> ReductionTurns::Proposed() const {
  std::vector<ChunkId> order = order_;
  const size_t often = PutAhead(order, 0, [&](ChunkId chunk) {
    return complete(chunk) || !missed_[chunk.index()];
  });
  auto next = completed_.begin();
  for (size_t place = 0; place < often; ++place) {
    if (complete(order[place])) order[place] = *next++;
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
