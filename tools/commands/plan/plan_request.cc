// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/units_text.h"
#include "offload/kernels/optimizer_options.h"

namespace castor {
namespace {

constexpr Bytes kLeastChunk = MiB(32);
constexpr Bytes kMostChunk = MiB(512);
constexpr int64_t kBudgetsPerChunk = 8;
// A model so small that it would have few chunks of the least size is cut into
// smaller ones where its budget asks for that.
constexpr int64_t kChunksPerModel = 64;

Status CheckTogether(const PlanFlags& flags) {
  if (!flags.files.layout.empty() &&
      (flags.engine.chunk_size || flags.min || flags.max)) {
    return InvalidArgument(
        "--layout says where every parameter lies: leave --chunk, --min and "
        "--max away");
  }
  if (flags.engine.chunk_size && (flags.min || flags.max)) {
    return InvalidArgument(
        "--chunk is the size, and --min and --max are for searching one; give "
        "either");
  }
  if (flags.engine.optimizer.momentum != 0 &&
      flags.engine.optimizer.kind != OptimizerKind::kSgd) {
    return InvalidArgument("--momentum is for --optimizer sgd");
  }
  if (flags.seq && !flags.trace.empty()) {
    return InvalidArgument(
        "--seq counts activations by formula and --trace has what was on "
        "lease; give one of them");
  }
  if (flags.borrow && !flags.seq) {
    return InvalidArgument(
        "--borrow-activations needs --seq, from which activations follow");
  }
  if (flags.engine.grad_mode == GradMode::kReuse && flags.micro_batches > 1) {
    return InvalidArgument(
        fmt::format("--grad-mode reuse writes gradients over parameters, which "
                    "{} micro-batches need again; take one, or another mode",
                    flags.micro_batches));
  }
  if (flags.batch && !flags.seq) {
    return InvalidArgument(
        "--batch says how large activations are, and so needs --seq");
  }
  return OkStatus();
}

// A size is searched between bounds that say themselves what they are, so that
// another budget alone changes no layout. No budget is so small that its chunks
// are below what the model calls for: what holds nothing tells no size.
Status FillChunks(const PlanFlags& flags, const PlanSubject& subject,
                  ZeroOptions* options) {
  options->max_chunk = kMostChunk;
  if (flags.device_budget) {
    const Bytes model = TotalsOf(subject).bytes;
    const Bytes least =
        std::min(kLeastChunk, RoundUp(model / kChunksPerModel, KiB(4)));
    const Bytes part = *flags.device_budget / kBudgetsPerChunk;
    options->max_chunk = std::max({std::min(kMostChunk, part), least, KiB(4)});
  }
  options->min_chunk = std::min(kLeastChunk, options->max_chunk);
  if (flags.max) {
    options->max_chunk = *flags.max;
    options->min_chunk = std::min(options->min_chunk, *flags.max);
  }
  if (flags.min) {
    options->min_chunk = *flags.min;
    if (!flags.max) {
      options->max_chunk = std::max(options->max_chunk, *flags.min);
    }
  }
  if (options->min_chunk == Bytes(0)) {
    return InvalidArgument(
        "a chunk of 0 bytes holds nothing: give --min and --max more");
  }
  if (options->min_chunk <= options->max_chunk) return OkStatus();
  return InvalidArgument(fmt::format("--min {} is above --max {}",
                                     FormatSizeExact(options->min_chunk),
                                     FormatSizeExact(options->max_chunk)));
}

int64_t Given(const std::optional<int64_t>& flag, int64_t known) {
  return flag.value_or(known);
}

Status FillActivations(const PlanFlags& flags, const PlanSubject& subject,
                       PlanRequest* request) {
  if (!flags.seq) return OkStatus();
  TransformerShape shape = subject.shape;
  shape.batch = flags.batch.value_or(1);
  shape.seq = *flags.seq;
  if (flags.width) shape.query_width = shape.key_width = 0;
  shape.width = Given(flags.width, shape.width);
  shape.heads = Given(flags.heads, shape.heads);
  shape.vocab = Given(flags.vocab, shape.vocab);
  shape.mlp_width = Given(flags.mlp_width, shape.mlp_width);
  shape.dropout = flags.dropout;
  shape.keeps_scores = flags.attention == "scores";
  for (const ParamSpec& spec : subject.model.params) {
    shape.element_bytes = DTypeBits(spec.dtype) / 8;
    break;
  }
  if (shape.width == 0 || shape.heads == 0) {
    return InvalidArgument(fmt::format(
        "nothing tells the model's {}, from which activations follow; give {}",
        shape.width == 0 ? "hidden size" : "attention heads",
        shape.width == 0 ? "--width and --heads" : "--heads"));
  }
  CASTOR_RETURN_IF_ERROR(ValidateShape(shape));
  request->activations = shape;
  request->borrows = flags.borrow;
  return OkStatus();
}

}  // namespace

Result<PlanRequest> CheckPlanFlags(const PlanFlags& flags,
                                   const PlanSubject& subject) {
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags));
  PlanRequest request;
  ZeroOptions& options = request.options;
  options = flags.engine;
  request.world = static_cast<int>(flags.world);
  options.layout = subject.layout;
  options.machine = subject.machine;
  CASTOR_RETURN_IF_ERROR(FillChunks(flags, subject, &options));
  request.device_limited = flags.device_budget.has_value();
  options.device_budget = flags.device_budget.value_or(kNoDeviceLimit);
  options.host_budget = flags.host_budget.value_or(Bytes(0));
  if (flags.nvme) options.nvme = {{{}, flags.nvme}};
  request.overhead = flags.cuda_context + flags.nccl;

  request.step.micro_batches = flags.micro_batches;
  request.step.order = flags.batch_order == "layer-major"
                           ? BatchOrder::kLayerMajor
                           : BatchOrder::kBatchMajor;
  request.step.recompute = flags.recompute;
  request.step.whole_grads = options.accumulation == AccumulationOrder::kLast;
  request.step.grads_in_place = options.grad_mode == GradMode::kReuse;
  request.whole_blocks = flags.hold == "block";
  CASTOR_RETURN_IF_ERROR(FillActivations(flags, subject, &request));
  request.compute_ns = flags.compute;
  options.step_compute_ns = flags.compute.value_or(0);
  request.ranks_per_host = flags.ranks_per_host;
  return request;
}

}  // namespace castor
