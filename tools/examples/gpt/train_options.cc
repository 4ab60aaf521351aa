// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// From flags, and the files that they name, to what is trained.

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/quote.h"
#include "chunk/layout_file.h"
#include "collectives/loss_scaler.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "tools/cli/nvme_flag.h"
#include "tools/cli/placement_flags.h"
#include "tools/cli/prefetch_flag.h"
#include "tools/cli/rate_text.h"
#include "tools/examples/gpt/resume.h"
#include "tools/examples/gpt/train_flags.h"
#include "tools/examples/gpt/train_option_files.h"
#include "tools/models/castor_files.h"

namespace castor::gpt {
namespace {

Status CheckCheckpointFlags(const TrainFlags& flags) {
  const TrainOptions& train = flags.train;
  if (flags.reference &&
      !(train.save.empty() && train.resume.empty() && train.init.empty())) {
    return InvalidArgument(
        "--reference has no checkpoints: leave --save, --resume and --init "
        "away");
  }
  if (!train.init.empty() && !train.resume.empty() &&
      train.resume != train.save) {
    return InvalidArgument(
        "--init begins a run and --resume goes on with one: leave one away, or "
        "resume from the folder of --save, which may hold nothing yet");
  }
  if (train.save.empty() &&
      (flags.save_every || flags.keep || train.save_async)) {
    return InvalidArgument(
        "--save-every, --save-async and --keep say how to save: give --save a "
        "folder too");
  }
  return OkStatus();
}

// Who leaves the sums to NCCL has one group of all ranks.
Status CheckReduceFlag(const TrainFlags& flags, const TrainOptions& options) {
  if (flags.reduce != "native" || options.shard_group <= 1 ||
      options.shard_group == options.ranks) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "--reduce native and shard groups of {} contradict each other: NCCL's "
      "own sums know one group of all {} ranks; take --reduce exact, or leave "
      "--shard-group away",
      options.shard_group, options.ranks));
}

std::optional<double> NumberIn(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || last != end) return std::nullopt;
  return number;
}

// Of gradients and what is done with them.
Status TakeSemantics(const TrainFlags& flags, TrainOptions* options) {
  options->decay_matrices_only = flags.decay == "matrices";
  options->schedule = ParseLrShape(flags.schedule).value_or(LrShape::kConstant);
  if (flags.grad_mode == "fp32") options->grad_mode = GradMode::kFp32;
  if (flags.grad_mode == "reuse") options->grad_mode = GradMode::kReuse;
  if (flags.accumulation_order == "last") {
    options->accumulation = AccumulationOrder::kLast;
  }
  if (flags.loss_scale == "dynamic") {
    options->loss_scaling.kind = LossScalingKind::kDynamic;
  } else if (!flags.loss_scale.empty()) {
    const std::optional<double> scale = NumberIn(flags.loss_scale);
    if (!scale || !(*scale > 0)) {
      return InvalidArgument(
          fmt::format("--loss-scale {} is neither a positive number nor "
                      "dynamic",
                      Quoted(flags.loss_scale)));
    }
    options->loss_scaling.kind = LossScalingKind::kStatic;
    options->loss_scaling.initial = *scale;
  }
  const bool plain = options->loss_scaling.kind == LossScalingKind::kNone &&
                     options->grad_mode == GradMode::kSeparate &&
                     options->accumulation == AccumulationOrder::kEach;
  if (flags.reference && !plain) {
    return InvalidArgument(
        "--reference has the usual gradients only: leave --loss-scale, "
        "--grad-mode and --accumulation-order away");
  }
  return OkStatus();
}

DType DTypeOf(const TrainFlags& flags) {
  if (flags.dtype == "bf16") return DType::kBF16;
  return flags.dtype == "f16" ? DType::kF16 : DType::kF32;
}

}  // namespace

Status CheckRankFlags(const TrainFlags& flags) {
  if (flags.backend == "nccl") {
    if (!flags.reference) return OkStatus();
    return InvalidArgument(
        "--reference knows one rank and no GPU: leave --backend away");
  }
  for (const auto& [name, value] : {std::pair("--reduce", &flags.reduce),
                                    std::pair("--id-file", &flags.id_file)}) {
    if (value->empty()) continue;
    return InvalidArgument(
        fmt::format("{} is of --backend nccl: give that too, or leave {} away",
                    name, name));
  }
  return OkStatus();
}

Result<TrainOptions> OptionsOf(const TrainFlags& flags) {
  TrainOptions options = flags.train;
  options.model = {.vocab = 256,
                   .context = static_cast<int>(flags.seq),
                   .layers = static_cast<int>(flags.layers),
                   .heads = static_cast<int>(flags.heads),
                   .embd = static_cast<int>(flags.embd)};
  options.dtype = DTypeOf(flags);
  CASTOR_RETURN_IF_ERROR(TakeSemantics(flags, &options));
  options.batch = static_cast<int>(flags.batch);
  options.accumulate = static_cast<int>(flags.accumulate);
  options.ranks = static_cast<int>(flags.ranks.value_or(1));
  options.rank_timeout_ns = flags.rank_timeout * 1'000'000'000;
  options.stage = static_cast<int>(flags.stage.value_or(3));
  options.shard_group = static_cast<int>(flags.shard_group.value_or(0));
  if (flags.optimizer_span == OptimizerSpanName(OptimizerSpan::kWorld)) {
    options.optimizer_span = OptimizerSpan::kWorld;
  }
  options.seed = static_cast<uint64_t>(flags.seed.value_or(1));
  options.save_every = flags.save_every.value_or(0);
  options.keep = flags.keep.value_or(0);
  if (flags.no_prefetch && flags.prefetch.has_value()) {
    return InvalidArgument(
        "--prefetch and --no-prefetch contradict each other; give one");
  }
  CASTOR_ASSIGN_OR_RETURN(const PrefetchChoice prefetch,
                          ParsePrefetchFlag(flags.prefetch));
  options.prefetch = prefetch.mode;
  options.prefetch_depth = flags.no_prefetch ? 0 : prefetch.depth;
  if (!flags.compute.empty()) {
    const Result<int64_t> ns = ParseStepTime(flags.compute);
    if (!ns.ok()) return ns.status().WithContext("--compute");
    options.step_compute_ns = *ns;
  }
  options.policy =
      flags.policy == "planned" ? PlanPolicy::kPlanned : PlanPolicy::kAuto;
  if (flags.digest_at > 0) options.digest_step = flags.digest_at;
  CASTOR_ASSIGN_OR_RETURN(options.nvme, ParseNvmeFlag(flags.nvme));
  if (!flags.limit.empty()) {
    CASTOR_ASSIGN_OR_RETURN(options.home_limits, ParseLimitFlag(flags.limit));
  }
  CASTOR_ASSIGN_OR_RETURN(options.home_rules, ParsePlaceFlag(flags.place));
  if (!flags.layout.empty() && !flags.reference) {
    if (options.chunk_size.has_value()) {
      return InvalidArgument(
          "--layout and --chunk exclude each other: a layout has its own "
          "chunks; leave one away");
    }
    CASTOR_ASSIGN_OR_RETURN(LayoutFile layout, ReadLayoutFile(flags.layout));
    options.layout = std::make_shared<const LayoutFile>(std::move(layout));
  }
  if (!flags.machine.empty() && !flags.reference) {
    CASTOR_ASSIGN_OR_RETURN(options.machine, ReadMachineFile(flags.machine));
  }
  if (!flags.plan.empty() && !flags.config.empty()) {
    return InvalidArgument(
        "--config and --plan each say what the engine is to do: leave one "
        "away");
  }
  if (!flags.plan.empty() && !flags.reference) {
    CASTOR_RETURN_IF_ERROR(TakePlan(flags, &options));
  }
  if (!flags.config.empty()) {
    if (flags.reference) {
      return InvalidArgument(
          "--reference has no engine: leave --config away, or say by flags "
          "what it knows");
    }
    CASTOR_RETURN_IF_ERROR(TakeConfig(flags, &options));
  }
  if (!flags.compute.empty() && options.prefetch != PrefetchMode::kDeadlines) {
    return InvalidArgument(
        "--compute is what deadlines of fetches are made of, and nothing asks "
        "for these: give --prefetch deadlines and --machine too, or leave "
        "--compute away");
  }
  CASTOR_RETURN_IF_ERROR(Validate(options));
  CASTOR_RETURN_IF_ERROR(CheckReduceFlag(flags, options));
  CASTOR_RETURN_IF_ERROR(CheckCheckpointFlags(flags));
  if (!options.resume.empty()) {
    CASTOR_RETURN_IF_ERROR(TakeCheckpoint(flags.seed, &options));
  }
  if (!options.init.empty()) {
    CASTOR_RETURN_IF_ERROR(TakeInitialWeights(&options));
  }
  if (!options.save.empty()) CASTOR_RETURN_IF_ERROR(CheckSaveFolder(options));
  return options;
}

}  // namespace castor::gpt
