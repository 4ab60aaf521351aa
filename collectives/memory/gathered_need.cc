// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/gathered_need.h"

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
          std::span<const int32_t> grad_class, const std::vector<bool>& direct,
          bool whole_grads, bool in_place)
      : layout_(layout),
        slot_class_(slot_class),
        grad_class_(grad_class.empty() ? slot_class : grad_class),
        direct_(direct),
        whole_grads_(whole_grads),
        in_place_(in_place) {
    CASTOR_CHECK_EQ(slot_class_.size(), layout.chunks().size());
    CASTOR_CHECK_EQ(grad_class_.size(), layout.chunks().size());
    for (const auto& classes : {slot_class_, grad_class_}) {
      for (int32_t c : classes) {
        classes_ = std::max(classes_, static_cast<size_t>(c) + 1);
      }
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
      for (ChunkId chunk : open[m]) {
        if (!in_place_) {
          ++now[GradClassOf(chunk)];
        } else if (!Direct(chunk)) {
          used.insert(chunk);
        }
      }
      for (ChunkId chunk : used) ++now[ClassOf(chunk)];
      for (size_t c = 0; c < classes_; ++c) peak[c] = std::max(peak[c], now[c]);
    }
    return peak;
  }

  std::vector<int64_t> Undeclared() const {
    std::vector<int64_t> need(classes_, 0);
    std::vector<int64_t> grads(classes_, 0);
    for (size_t c = 0; c < slot_class_.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      if (in_place_ && Direct(chunk)) continue;
      ++need[ClassOf(chunk)];
      if (!whole_grads_ || Trainable(chunk)) ++grads[GradClassOf(chunk)];
    }
    for (size_t c = 0; c < classes_; ++c) {
      need[c] = std::min<int64_t>(need[c], 2) +
                (whole_grads_ ? grads[c] : std::min<int64_t>(grads[c], 2));
    }
    return need;
  }

  std::vector<int64_t> AtLeastOne(std::vector<int64_t> need) const {
    for (size_t c = 0; c < slot_class_.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      if (!Direct(chunk)) {
        int64_t& slots = need[ClassOf(chunk)];
        slots = std::max<int64_t>(slots, 1);
      }
      if (Trainable(chunk) && !in_place_) {
        int64_t& slots = need[GradClassOf(chunk)];
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
      const size_t begin = whole_grads_ ? 0 : moments.first;
      const size_t end =
          all && !whole_grads_ ? moments.second + 1 : held.size();
      for (size_t m = begin; m < end; ++m) open[m].push_back(chunk);
    }
    return open;
  }

  bool Direct(ChunkId chunk) const {
    return !direct_.empty() && direct_[chunk.index()];
  }
  bool Trainable(ChunkId chunk) const {
    const auto group = static_cast<size_t>(layout_.chunk(chunk).group);
    return layout_.groups()[group].trainable;
  }
  size_t ClassOf(ChunkId chunk) const {
    return static_cast<size_t>(slot_class_[chunk.index()]);
  }
  size_t GradClassOf(ChunkId chunk) const {
    return static_cast<size_t>(grad_class_[chunk.index()]);
  }

  const ChunkLayout& layout_;
  std::span<const int32_t> slot_class_;
  std::span<const int32_t> grad_class_;
  const std::vector<bool>& direct_;
  const bool whole_grads_;
  const bool in_place_;
  size_t classes_ = 0;
};

}  // namespace

std::vector<int64_t> GatheredNeed(const ChunkLayout& layout,
                                  std::span<const int32_t> slot_class,
                                  const std::vector<HeldTogether>& held,
                                  const std::vector<bool>& direct,
                                  std::span<const int32_t> grad_class,
                                  bool whole_grads, bool in_place) {
  const Counter counter(layout, slot_class, grad_class, direct, whole_grads,
                        in_place);
  return counter.AtLeastOne(held.empty() ? counter.Undeclared()
                                         : counter.Declared(held));
}

}  // namespace castor::internal
