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
#include "chunk/param_spec.h"
#include "collectives/loss_scaler.h"
#include "collectives/lr_schedule.h"
#include "collectives/optimizer_groups.h"
#include "collectives/plan_file.h"
#include "collectives/zero_config.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "tools/cli/nvme_flag.h"
#include "tools/cli/placement_flags.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/examples/gpt/resume.h"
#include "tools/examples/gpt/train_flags.h"
#include "tools/models/layout_reader.h"
#include "tools/models/machine_reader.h"
#include "tools/models/plan_reader.h"

namespace castor::gpt {
namespace {

// What a plan says is not said by flags too.
Status CheckNotSaidTwice(const TrainFlags& flags) {
  const struct {
    const char* name;
    bool given;
  } said[] = {{"--device-budget", flags.train.device_budget > Bytes(0)},
              {"--host-budget", flags.train.host_budget > Bytes(0)},
              {"--chunk", flags.train.chunk_size.has_value()},
              {"--layout", !flags.layout.empty()},
              {"--stage", flags.stage.has_value()},
              {"--shard-group", flags.shard_group.has_value()},
              {"--optimizer-span", !flags.optimizer_span.empty()},
              {"--prefetch", flags.prefetch >= 0},
              {"--no-prefetch", flags.no_prefetch},
              {"--policy", !flags.policy.empty()},
              {"--grad-mode", !flags.grad_mode.empty()},
              {"--accumulation-order", !flags.accumulation_order.empty()},
              {"--limit", !flags.limit.empty()},
              {"--place", !flags.place.empty()}};
  for (const auto& flag : said) {
    if (!flag.given) continue;
    return InvalidArgument(
        fmt::format("{} and --plan each say the same: leave {} away, or plan "
                    "again with it",
                    flag.name, flag.name));
  }
  return OkStatus();
}

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

Status TakePlan(const TrainFlags& flags, TrainOptions* options) {
  CASTOR_RETURN_IF_ERROR(CheckNotSaidTwice(flags));
  CASTOR_ASSIGN_OR_RETURN(LoadedPlan loaded, ReadPlanFile(flags.plan));
  CASTOR_RETURN_IF_ERROR(Validate(options->model));
  std::vector<ParamSpec> specs;
  const GptParams params(options->model);
  for (const GptParam& param : params.all()) {
    specs.push_back({param.name, param.shape, options->dtype, true});
  }
  const Status fits = CheckPlanFits(loaded.plan, specs, options->ranks);
  if (!fits.ok()) return fits.WithContext(QuotedPath(flags.plan));
  // As the engine will have them.
  ZeroOptions zero;
  zero.nvme = options->nvme;
  CASTOR_RETURN_IF_ERROR(ApplyPlan(loaded.plan, &zero));
  options->stage = zero.stage;
  options->shard_group = zero.shard_group;
  options->optimizer_span = zero.optimizer_span;
  options->device_budget = zero.device_budget;
  options->host_budget = zero.host_budget;
  options->nvme = zero.nvme;
  options->layout = loaded.layout;
  options->prefetch_depth = zero.prefetch_depth;
  options->policy = zero.policy;
  options->grad_mode = zero.grad_mode;
  options->accumulation = zero.accumulation;
  options->home_limits = zero.home_limits;
  options->home_rules = zero.home_rules;
  options->plan = std::move(loaded);
  return OkStatus();
}

Status CheckGroupsOfConfig(const std::vector<OptimizerGroup>& groups) {
  for (const OptimizerGroup& group : groups) {
    if (group.name == kVectorsGroup) continue;
    return InvalidArgument(
        fmt::format("the optimizer's group {} has no parameters here: name it "
                    "{}, the norms "
                    "and biases, or leave it away",
                    Quoted(group.name), Quoted(kVectorsGroup)));
  }
  return OkStatus();
}

// What the config says goes on top of what the flags do.
Status TakeConfig(const TrainFlags& flags, TrainOptions* options) {
  ZeroConfig config;
  ZeroOptions& base = config.engine;
  base.stage = options->stage;
  base.shard_group = options->shard_group;
  base.optimizer_span = options->optimizer_span;
  base.optimizer = OptimizerOf(*options);
  base.groups = GroupsOf(*options);
  base.clip_norm = options->clip_norm;
  base.loss_scaling = options->loss_scaling;
  base.grad_mode = options->grad_mode;
  base.accumulation = options->accumulation;
  base.chunk_size = options->chunk_size;
  base.device_budget = options->device_budget;
  base.host_budget = options->host_budget;
  base.nvme = options->nvme;
  base.prefetch_depth = options->prefetch_depth;
  base.policy = options->policy;
  base.layout = options->layout;
  base.home_limits = options->home_limits;
  base.home_rules = options->home_rules;
  base.machine = options->machine;
  std::vector<std::string> said;
  const std::string where = QuotedPath(flags.config);
  Result<ZeroConfig> taken =
      ParseTrainerConfig(flags.config_text, std::move(config), &said);
  if (!taken.ok()) return taken.status().WithContext(where);
  CASTOR_RETURN_IF_ERROR(ReadFilesOf(&*taken).WithContext(where));
  ZeroOptions* const zero = &taken->engine;
  CASTOR_RETURN_IF_ERROR(CheckGroupsOfConfig(zero->groups).WithContext(where));
  options->stage = zero->stage;
  options->shard_group = zero->shard_group;
  options->optimizer_span = zero->optimizer_span;
  options->decay_matrices_only = !zero->groups.empty();
  options->clip_norm = zero->clip_norm;
  options->loss_scaling = zero->loss_scaling;
  options->grad_mode = zero->grad_mode;
  options->accumulation = zero->accumulation;
  options->chunk_size = zero->chunk_size;
  options->device_budget = zero->device_budget;
  options->host_budget = zero->host_budget;
  options->nvme = zero->nvme;
  options->prefetch_depth = zero->prefetch_depth;
  options->policy = zero->policy;
  options->layout = zero->layout;
  options->home_limits = zero->home_limits;
  options->home_rules = zero->home_rules;
  options->machine = zero->machine;
  options->config = std::move(*zero);
  return OkStatus();
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
  if (flags.no_prefetch && flags.prefetch >= 0) {
    return InvalidArgument(
        "--prefetch and --no-prefetch contradict each other; give one");
  }
  if (flags.no_prefetch) options.prefetch_depth = 0;
  if (flags.prefetch >= 0) {
    options.prefetch_depth = static_cast<int>(flags.prefetch);
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
  CASTOR_RETURN_IF_ERROR(Validate(options));
  CASTOR_RETURN_IF_ERROR(CheckCheckpointFlags(flags));
  if (!options.resume.empty()) {
    CASTOR_RETURN_IF_ERROR(TakeCheckpoint(flags.seed, &options));
  }
  if (!options.init.empty()) {
    CASTOR_RETURN_IF_ERROR(TakeInitialWeights(&options));
  }
  return options;
}

}  // namespace castor::gpt
