// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/gathered_need.h"

#include <algorithm>
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
    std::vector<int64_t> peak(classes_, 0);
    ForEachMoment(held, [&](size_t, const std::vector<int64_t>& now) {
      for (size_t c = 0; c < classes_; ++c) peak[c] = std::max(peak[c], now[c]);
    });
    return peak;
  }

  std::vector<std::vector<int64_t>> ByMoment(
      const std::vector<HeldTogether>& held) const {
    std::vector<std::vector<int64_t>> by_moment(
        classes_, std::vector<int64_t>(held.size()));
    ForEachMoment(held, [&](size_t m, const std::vector<int64_t>& now) {
      for (size_t c = 0; c < classes_; ++c) by_moment[c][m] = now[c];
    });
    return by_moment;
  }

  // Tells `visit` of each moment the slots held then, by class.
  template <typename Visit>
  void ForEachMoment(const std::vector<HeldTogether>& held,
                     const Visit& visit) const {
    const std::vector<Span> open = OpenGrads(held);
    // By moment and class: slots that gradients take from it on, less those
    // that they do no longer.
    std::vector<std::vector<int64_t>> change(held.size() + 1,
                                             std::vector<int64_t>(classes_, 0));
    for (size_t c = 0; c < open.size(); ++c) {
      const ChunkId chunk(static_cast<int32_t>(c));
      if (open[c].end == 0 || (in_place_ && Direct(chunk))) continue;
      const size_t of_class = in_place_ ? ClassOf(chunk) : GradClassOf(chunk);
      ++change[open[c].begin][of_class];
      --change[open[c].end][of_class];
    }
    std::vector<int64_t> grads(classes_, 0);
    std::vector<size_t> counted_at(open.size(), held.size());  // by chunk
    for (size_t m = 0; m < held.size(); ++m) {
      for (size_t c = 0; c < classes_; ++c) grads[c] += change[m][c];
      std::vector<int64_t> now = grads;
      for (ParamId param : held[m].params) {
        const ChunkId chunk = layout_.place(param).chunk;
        if (!chunk.valid() || Direct(chunk)) continue;
        if (std::exchange(counted_at[chunk.index()], m) == m) continue;
        const Span& grad = open[chunk.index()];
        const bool counted = in_place_ && grad.begin <= m && m < grad.end;
        if (!counted) ++now[ClassOf(chunk)];
      }
      visit(m, now);
    }
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
  // Moments from `begin` up to `end`, which is none of them.
  struct Span {
    size_t begin = 0;
    size_t end = 0;
  };

  // When each chunk's gradient is held.
  std::vector<Span> OpenGrads(const std::vector<HeldTogether>& held) const {
    std::vector<Span> open(layout_.chunks().size());
    std::vector<size_t> listed(open.size(), 0);  // parameters of each chunk
    std::vector<bool> is_listed(layout_.places().size(), false);
    for (size_t m = 0; m < held.size(); ++m) {
      for (ParamId param : held[m].grads) {
        const ChunkId chunk = layout_.place(param).chunk;
        if (!chunk.valid()) continue;
        Span& span = open[chunk.index()];
        if (span.end == 0) span.begin = m;
        span.end = m + 1;
        if (is_listed[param.index()]) continue;
        is_listed[param.index()] = true;
        ++listed[chunk.index()];
      }
    }
    for (size_t c = 0; c < open.size(); ++c) {
      if (listed[c] == 0) continue;
      if (whole_grads_) open[c].begin = 0;
      if (whole_grads_ || listed[c] < layout_.chunks()[c].params.size()) {
        open[c].end = held.size();
      }
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

std::vector<std::vector<int64_t>> GatheredByMoment(
    const ChunkLayout& layout, std::span<const int32_t> slot_class,
    const std::vector<HeldTogether>& held, const std::vector<bool>& direct,
    std::span<const int32_t> grad_class, bool whole_grads, bool in_place) {
  return Counter(layout, slot_class, grad_class, direct, whole_grads, in_place)
      .ByMoment(held);
}

}  // namespace castor::internal
