// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/derive/step_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "placement/trace/access_recorder.h"

namespace castor {
namespace {

// Far more than any step has accesses.
constexpr int64_t kMostMicroBatches = int64_t{1} << 20;
constexpr int64_t kMostAccesses = int64_t{1} << 28;

class Deriver {
 public:
  Deriver(const ChunkLayout& layout, std::span<const ModelBlock> blocks,
          const StepShape& shape)
      : layout_(layout),
        blocks_(blocks),
        shape_(shape),
        recorder_(&layout, shape.whole_grads, shape.grads_in_place),
        leased_(shape.resident) {}

  Result<StepTrace> Derive() {
    CASTOR_RETURN_IF_ERROR(Check());
    first_trained_ = FirstTrained();
    FindLastOpenings();
    overwritten_.assign(layout_.places().size(), false);
    recorder_.SetLeased(leased_);
    if (shape_.order == BatchOrder::kLayerMajor) {
      recorder_.BeginMicroBatch(/*last=*/true);
      Sweep(shape_.micro_batches);
    } else {
      for (int64_t m = 0; m < shape_.micro_batches; ++m) {
        recorder_.BeginMicroBatch(/*last=*/m + 1 == shape_.micro_batches);
        Sweep(1);
      }
    }
    CASTOR_RETURN_IF_ERROR(held_again_);
    return recorder_.Finish();
  }

 private:
  bool Trainable(ParamId param) const {
    const ChunkId chunk = layout_.place(param).chunk;
    // One without elements is in no chunk: its gradient shows in no trace.
    if (!chunk.valid()) return false;
    const auto group = static_cast<size_t>(layout_.chunk(chunk).group);
    return layout_.groups()[group].trainable;
  }

  Status Check() const {
    if (shape_.micro_batches < 1 || shape_.micro_batches > kMostMicroBatches) {
      return InvalidArgument(
          fmt::format("a step has 1 to {} micro-batches, not {}",
                      kMostMicroBatches, shape_.micro_batches));
    }
    int64_t params = 0;
    double ns = 0;
    // Of all blocks what is held from forward to backward, of one the rest.
    double bytes = static_cast<double>(shape_.resident.count());
    double whole = 0;
    const double batches = shape_.order == BatchOrder::kLayerMajor
                               ? static_cast<double>(shape_.micro_batches)
                               : 1;
    for (const ModelBlock& block : blocks_) {
      for (const auto* uses : {&block.forward, &block.backward}) {
        for (const ParamUse& use : *uses) {
          CASTOR_RETURN_IF_ERROR(CheckParams(block, use.hold));
          CASTOR_RETURN_IF_ERROR(CheckParams(block, use.grads));
          params += static_cast<int64_t>(use.hold.size() + use.grads.size());
        }
      }
      const BlockActivations& a = block.activations;
      if (a.kept < a.kept_input || a.kept_input < Bytes(0) ||
          a.working < Bytes(0) || block.forward_ns < 0 ||
          block.backward_ns < 0) {
        return InvalidArgument(fmt::format(
            "block {} has {} bytes of activations, {} of them its input, {} "
            "while it works, {} and {} ns: none may be negative, and the input "
            "is part of the whole",
            Quoted(block.name), a.kept.count(), a.kept_input.count(),
            a.working.count(), block.forward_ns, block.backward_ns));
      }
      const Bytes held = Recomputes(block) ? a.kept_input : a.kept;
      bytes += batches * static_cast<double>(held.count());
      whole = std::max(whole, static_cast<double>(a.kept.count()) +
                                  static_cast<double>(a.working.count()));
      ns += static_cast<double>(shape_.micro_batches) *
            (2 * static_cast<double>(block.forward_ns) +
             static_cast<double>(block.backward_ns));
    }
    if (!(ns < static_cast<double>(kMaxStepNs))) {
      return InvalidArgument(fmt::format(
          "all blocks compute for {:.3g} ns in a step, and a trace holds up to "
          "{}",
          ns, kMaxStepNs));
    }
    if (shape_.resident < Bytes(0) ||
        !(bytes + whole < static_cast<double>(kMaxLeased.count()))) {
      return InvalidArgument(fmt::format(
          "the activations of all blocks come to {:.3g} bytes, and a trace "
          "holds up to {}; use a smaller batch or shorter sequences",
          bytes + whole, FormatSize(kMaxLeased)));
    }
    // Each is a begin and an end, twice where recomputed.
    if (params > kMostAccesses / 4 / shape_.micro_batches) {
      return InvalidArgument(fmt::format(
          "{} micro-batches of {} uses of parameters are more accesses than a "
          "trace holds ({})",
          shape_.micro_batches, params, kMostAccesses));
    }
    return OkStatus();
  }

  Status CheckParams(const ModelBlock& block,
                     std::span<const ParamId> params) const {
    for (const ParamId param : params) {
      if (!param.valid() || param.index() >= layout_.places().size()) {
        return InvalidArgument(fmt::format(
            "block {} names parameter {}, and the layout has {}, numbered from "
            "0",
            Quoted(block.name), param.value(), layout_.places().size()));
      }
    }
    return OkStatus();
  }

  // The first block that has something to learn; all behind it pass gradients
  // on to it.
  size_t FirstTrained() const {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (const ParamUse& use : blocks_[b].backward) {
        if (std::any_of(use.grads.begin(), use.grads.end(),
                        [&](ParamId p) { return Trainable(p); })) {
          return b;
        }
      }
    }
    return blocks_.size();
  }

  // By ParamId, the last of a sweep's openings of its gradient, counted over
  // all openings of a sweep through one micro-batch.
  void FindLastOpenings() {
    last_opening_.assign(layout_.places().size(), -1);
    int64_t opening = 0;
    for (size_t b = blocks_.size(); b-- > first_trained_;) {
      for (const ParamUse& use : blocks_[b].backward) {
        for (const ParamId param : use.grads) {
          last_opening_[param.index()] = opening++;
        }
      }
    }
  }

  void Lease(Bytes more) {
    leased_ += more;
    recorder_.SetLeased(leased_);
  }

  bool Recomputes(const ModelBlock& block) const {
    return shape_.recompute && block.kind == BlockKind::kLayer;
  }

  // All blocks, each with `batches` micro-batches before the next.
  void Sweep(int64_t batches) {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (int64_t m = 0; m < batches; ++m) Forward(blocks_[b], b);
    }
    opening_ = 0;
    for (size_t b = blocks_.size(); b-- > 0;) {
      const int64_t first_opening = opening_;
      for (int64_t m = 0; m < batches; ++m) {
        opening_ = first_opening;
        Backward(blocks_[b], b, /*last=*/m + 1 == batches);
      }
    }
  }

  void Forward(const ModelBlock& block, size_t b) {
    const BlockActivations& a = block.activations;
    // Where nothing will go backward, nothing is kept.
    const bool discards = b < first_trained_ || Recomputes(block);
    Lease(a.kept + a.working);
    RunUses(block.forward, block.forward_ns, std::nullopt);
    Bytes over = a.working;
    if (discards) over += a.kept;
    if (discards && b >= first_trained_) over -= a.kept_input;
    Lease(Bytes(0) - over);
  }

  void Backward(const ModelBlock& block, size_t b, bool last) {
    if (b < first_trained_) return;
    const BlockActivations& a = block.activations;
    if (Recomputes(block)) {
      Lease(a.kept - a.kept_input + a.working);
      RunUses(block.forward, block.forward_ns, std::nullopt);
    } else {
      Lease(a.working);
    }
    RunUses(block.backward, block.backward_ns, last);
    Lease(Bytes(0) - a.kept - a.working);
  }

  // `last`, of a way back: no micro-batch follows in this block. Empty: a way
  // there.
  void RunUses(const std::vector<ParamUse>& uses, int64_t ns,
               std::optional<bool> last) {
    const auto count = static_cast<int64_t>(uses.size());
    if (count == 0 && ns > 0) recorder_.Compute(ns);
    for (int64_t i = 0; i < count; ++i) {
      const ParamUse& use = uses[static_cast<size_t>(i)];
      CheckHold(use);
      const int hold = recorder_.Hold(use.hold);
      const int64_t first_opening = opening_;
      if (last && !shape_.grads_in_place) OpenGrads(use);
      // Even parts that add up to all of it.
      if (ns > 0) recorder_.Compute(ns * (i + 1) / count - ns * i / count);
      if (shape_.grads_in_place) {
        recorder_.Release(hold);
        if (last) OpenGrads(use);
      }
      if (last == true) HandBack(use, first_opening);
      if (!shape_.grads_in_place) recorder_.Release(hold);
    }
  }

  void CheckHold(const ParamUse& use) {
    if (!shape_.grads_in_place || !held_again_.ok()) return;
    for (const ParamId param : use.hold) {
      if (!overwritten_[param.index()]) continue;
      held_again_ = InvalidArgument(fmt::format(
          "parameter {} is used again after its gradient was written over it: "
          "such a model needs gradients of their own",
          param.value()));
      return;
    }
  }

  void OpenGrads(const ParamUse& use) {
    for (const ParamId param : use.grads) {
      if (Trainable(param)) {
        recorder_.OpenGrad(param);
        overwritten_[param.index()] = shape_.grads_in_place;
      }
      ++opening_;
    }
  }

  void HandBack(const ParamUse& use, int64_t first_opening) {
    for (size_t i = use.grads.size(); i-- > 0;) {
      const ParamId param = use.grads[i];
      if (Trainable(param) && last_opening_[param.index()] ==
                                  first_opening + static_cast<int64_t>(i)) {
        recorder_.GradReady(param);
      }
    }
  }

  const ChunkLayout& layout_;
  std::span<const ModelBlock> blocks_;
  const StepShape& shape_;
  AccessRecorder recorder_;
  Bytes leased_;
  size_t first_trained_ = 0;
  std::vector<int64_t> last_opening_;  // by ParamId
  int64_t opening_ = 0;                // of the sweep under way
  std::vector<bool> overwritten_;      // by ParamId
  Status held_again_;
};

}  // namespace

std::vector<ModelBlock> BlocksOf(const DeclaredStep& step) {
  const auto back =
      std::find_if(step.uses.begin(), step.uses.end(),
                   [](const ParamUse& use) { return !use.grads.empty(); });
  ModelBlock block;
  block.name = "step";
  block.forward.assign(step.uses.begin(), back);
  block.backward.assign(back, step.uses.end());
  return {block};
}

Result<StepTrace> DeriveStep(const ChunkLayout& layout,
                             std::span<const ModelBlock> blocks,
                             const StepShape& shape) {
  return Deriver(layout, blocks, shape).Derive();
}

}  // namespace castor
