// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/internal/gathered_need.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/ids.h"

namespace castor::internal {
namespace {

class Counter {
 public:
  Counter(const ChunkLayout& layout, std::span<const int32_t> slot_class,
          const std::vector<bool>& direct)
      : layout_(layout), slot_class_(slot_class), direct_(direct) {
    CASTOR_CHECK_EQ(slot_class.size(), layout.chunks().size());
    for (int32_t c : slot_class) {
      classes_ = std::max(classes_, static_cast<size_t>(c) + 1);
    }
  }

  std::vector<int64_t> Declared(const std::vector<HeldTogether>& held) const {
    const std::vector<std::vector<ChunkId>> open = OpenGrads(held);
    std::vector<int64_t> peak(classes_, 0);
    for (size_t m = 0; m < held.size(); ++m) {
      std::vector<int64_t> now(classes_, 0);
      std::set<ChunkId> used;
      for (ParamId param : held[m].params) {
        const ChunkId chunk = layout_.place(param).chunk;
        if (chunk.valid() && !Direct(chunk)) used.insert(chunk);
      }
      for (ChunkId chunk : used) ++now[ClassOf(chunk)];
      for (ChunkId chunk : open[m]) ++now[ClassOf(chunk)];
      for (size_t c = 0; c < classes_; ++c) peak[c] = std::max(peak[c], now[c]);
    }
    return peak;
  }

  std::vector<int64_t> Undeclared() const {
    std::vector<int64_t> chunks(classes_, 0);
    for (int32_t c : slot_class_) ++chunks[static_cast<size_t>(c)];
    for (int64_t& count : chunks) count = 2 * std::min<int64_t>(count, 2);
    return chunks;
  }

  std::vector<int64_t> AtLeastOne(std::vector<int64_t> need) const {
    for (size_t c = 0; c < slot_class_.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      const auto group = static_cast<size_t>(layout_.chunk(chunk).group);
      if (!Direct(chunk) || layout_.groups()[group].trainable) {
        int64_t& slots = need[ClassOf(chunk)];
        slots = std::max<int64_t>(slots, 1);
      }
    }
    return need;
  }

 private:
  // The chunks whose gradients are held, by moment.
  std::vector<std::vector<ChunkId>> OpenGrads(
      const std::vector<HeldTogether>& held) const {
    std::map<ChunkId, std::pair<size_t, size_t>> span;  // first, last
    std::map<ChunkId, std::set<ParamId>> listed;
    for (size_t m = 0; m < held.size(); ++m) {
      for (ParamId param : held[m].grads) {
        const ChunkId chunk = layout_.place(param).chunk;
        if (!chunk.valid()) continue;
        span.try_emplace(chunk, m, m).first->second.second = m;
        listed[chunk].insert(param);
      }
    }
    std::vector<std::vector<ChunkId>> open(held.size());
    for (const auto& [chunk, moments] : span) {
      const bool all =
          listed[chunk].size() == layout_.chunk(chunk).params.size();
      const size_t end = all ? moments.second + 1 : held.size();
      for (size_t m = moments.first; m < end; ++m) open[m].push_back(chunk);
    }
    return open;
  }

  bool Direct(ChunkId chunk) const {
    return !direct_.empty() && direct_[chunk.index()];
  }
  size_t ClassOf(ChunkId chunk) const {
    return static_cast<size_t>(slot_class_[chunk.index()]);
  }

  const ChunkLayout& layout_;
  std::span<const int32_t> slot_class_;
  const std::vector<bool>& direct_;
  size_t classes_ = 0;
};

}  // namespace

std::vector<int64_t> GatheredNeed(const ChunkLayout& layout,
                                  std::span<const int32_t> slot_class,
                                  const std::vector<HeldTogether>& held,
                                  const std::vector<bool>& direct) {
  const Counter counter(layout, slot_class, direct);
  return counter.AtLeastOne(held.empty() ? counter.Undeclared()
                                         : counter.Declared(held));
}

}  // namespace castor::internal
