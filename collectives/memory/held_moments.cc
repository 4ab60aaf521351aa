// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/held_moments.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "chunk/base/ids.h"

namespace castor {
namespace {

class Observer {
 public:
  Observer(std::span<const ParamSpec> params,
           std::span<const ModelBlock> blocks, const StepShape& shape)
      : params_(params),
        blocks_(blocks),
        shape_(shape),
        openings_left_(params.size(), 0),
        is_open_(params.size(), false) {}

  std::vector<HeldTogether> Observe() {
    first_trained_ = blocks_.size();
    for (size_t b = blocks_.size(); b-- > 0;) {
      for (const ParamUse& use : blocks_[b].backward) {
        for (const ParamId param : use.grads) {
          if (!Trainable(param)) continue;
          first_trained_ = b;
          ++openings_left_[param.index()];
        }
      }
    }
    for (const ModelBlock& block : blocks_) Hold(block.forward);
    for (size_t b = blocks_.size(); b-- > first_trained_;) Backward(blocks_[b]);
    return std::move(moments_);
  }

 private:
  bool Trainable(ParamId param) const {
    return params_[param.index()].trainable;
  }

  void Hold(const std::vector<ParamUse>& uses) {
    for (const ParamUse& use : uses) moments_.push_back({use.hold, open_});
  }

  // More than two micro-batches in a row hold nothing that two do not.
  void Backward(const ModelBlock& block) {
    const bool in_row =
        shape_.order == BatchOrder::kLayerMajor && shape_.micro_batches > 1;
    for (int pass = in_row ? 0 : 1; pass < 2; ++pass) {
      if (shape_.recompute && block.kind == BlockKind::kLayer) {
        Hold(block.forward);
      }
      for (const ParamUse& use : block.backward) {
        if (shape_.grads_in_place) moments_.push_back({use.hold, open_});
        for (const ParamId param : use.grads) {
          if (!Trainable(param) || is_open_[param.index()]) continue;
          is_open_[param.index()] = true;
          open_.push_back(param);
        }
        if (shape_.grads_in_place) moments_.push_back({{}, open_});
        if (!shape_.grads_in_place) moments_.push_back({use.hold, open_});
        if (pass == 0) continue;  // the next one adds to them
        for (const ParamId param : use.grads) {
          if (Trainable(param) && --openings_left_[param.index()] == 0) {
            is_open_[param.index()] = false;
          }
        }
        std::erase_if(open_,
                      [&](ParamId param) { return !is_open_[param.index()]; });
      }
    }
  }

  std::span<const ParamSpec> params_;
  std::span<const ModelBlock> blocks_;
  const StepShape& shape_;
  std::vector<int64_t> openings_left_;  // by ParamId, of its gradient
  size_t first_trained_ = 0;
  std::vector<ParamId> open_;
  std::vector<bool> is_open_;  // by ParamId
  std::vector<HeldTogether> moments_;
};

}  // namespace

std::vector<HeldTogether> HeldMomentsOf(std::span<const ParamSpec> params,
                                        std::span<const ModelBlock> blocks,
                                        const StepShape& shape) {
  return Observer(params, blocks, shape).Observe();
}

std::vector<HeldTogether> HeldMomentsOf(const ChunkLayout& layout,
                                        const Trace& trace) {
  std::vector<HeldTogether> moments;
  std::vector<int> uses(layout.chunks().size(), 0);
  std::vector<bool> open(layout.chunks().size(), false);
  std::vector<bool> reduced(layout.chunks().size(), false);
  for (const Access& access : trace) {
    const size_t chunk = access.chunk.index();
    switch (access.kind) {
      case AccessKind::kUse:
        ++uses[chunk];
        break;
      case AccessKind::kUseEnd:
        --uses[chunk];
        continue;
      case AccessKind::kGradOpen:
        // The next micro-batch holds what this one did.
        if (reduced[chunk]) return moments;
        open[chunk] = true;
        break;
      case AccessKind::kGradClose:
        open[chunk] = false;
        reduced[chunk] = true;
        continue;
    }
    HeldTogether& held = moments.emplace_back();
    for (size_t c = 0; c < uses.size(); ++c) {
      const std::vector<ParamId>& params =
          layout.chunk(ChunkId(static_cast<int32_t>(c))).params;
      if (uses[c] > 0) held.params.push_back(params.front());
      if (open[c]) {
        held.grads.insert(held.grads.end(), params.begin(), params.end());
      }
    }
  }
  return moments;
}

bool EndsWithAllGrads(std::span<const HeldTogether> held) {
  if (held.empty() || !held.back().params.empty()) return false;
  const std::set<ParamId> last(held.back().grads.begin(),
                               held.back().grads.end());
  for (const HeldTogether& moment : held) {
    for (const ParamId param : moment.grads) {
      if (!last.contains(param)) return false;
    }
  }
  return !last.empty();
}

}  // namespace castor
