// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_flags.h"

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
#include "tools/models/input_file.h"
#include "tools/models/layout_reader.h"
#include "tools/models/machine_reader.h"
#include "tools/models/plan_reader.h"

namespace castor::gpt {
namespace {

// Far more than there is to say.
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

}  // namespace

void DeclareTrainFlags(CLI::App& app, TrainFlags& flags) {
  TrainOptions& train = flags.train;
  AddTextFlag(app, "--text", &flags.text,
              fmt::format("file or folder to train on, byte by byte (default "
                          "{})",
                          kDefaultTextPath));
  AddIntFlag(app, "--layers", &flags.layers, 1, 4096, "blocks (default 9)");
  AddIntFlag(app, "--heads", &flags.heads, 1, 4096,
             "attention heads (default 8)");
  AddIntFlag(app, "--embd", &flags.embd, 1, 65536,
             "columns of the residual stream (default 512)");
  AddIntFlag(app, "--seq", &flags.seq, 1, 65536,
             "tokens of a sequence (default 256)");
  AddIntFlag(app, "--batch", &flags.batch, 1, 65536,
             "sequences of a rank's micro-batch (default 2)");
  AddIntFlag(app, "--accumulate", &flags.accumulate, 1, 65536,
             "micro-batches of a step (default 1)");
  AddIntFlag(app, "--steps", &train.steps, 1, 1'000'000'000,
             "steps (default 30)");
  AddIntFlag(app, "--seed", &flags.seed, 0, INT64_MAX,
             "of initial values and data (default 1)");
  AddChoiceFlag(app, "--dtype", &flags.dtype, {"f32", "bf16", "f16"},
                "of parameters and gradients (default f32)");
  AddRealFlag(app, "--lr", &train.lr, 0, 1e3, "learning rate (default 3e-4)");
  AddRealFlag(app, "--weight-decay", &train.weight_decay, 0, 1e3,
              "of AdamW (default 0.1)");
  AddChoiceFlag(app, "--decay", &flags.decay, {"all", "matrices"},
                "what weight decay is for: all parameters, or not norms and "
                "biases (default all)");
  AddIntFlag(app, "--warmup", &train.warmup, 0, 1'000'000'000,
             "steps in which the learning rate rises (default 0)");
  AddChoiceFlag(app, "--schedule", &flags.schedule,
                {"constant", "linear", "cosine"},
                "how the rate goes to 0 after that, if it does (default "
                "constant)");
  AddRealFlag(app, "--clip", &train.clip_norm, 0, 1e30,
              "largest global norm of the gradient; 0: none (default 1)");
  AddTextFlag(app, "--loss-scale", &flags.loss_scale,
              "factor of the loss, for f16; dynamic: from 65536 on, less "
              "where gradients overflow (default: none)");
  AddChoiceFlag(app, "--grad-mode", &flags.grad_mode,
                {"separate", "fp32", "reuse"},
                "gradients are of the parameters' type, or fp32, or take the "
                "place of parameters (default separate)");
  AddChoiceFlag(app, "--accumulation-order", &flags.accumulation_order,
                {"each", "last"},
                "every micro-batch's gradients are reduced, or they are added "
                "up, whole, and reduced once (default each)");
  AddIntFlag(app, "--ranks", &flags.ranks, 1, 1024,
             "ranks, threads of this process (default 1); under mpirun, as "
             "many as there are processes");
  AddIntFlag(app, "--rank", &flags.rank, 0, 1'000'000,
             "which of --ranks this process is, where nothing that started it "
             "tells");
  AddChoiceFlag(app, "--backend", &flags.backend, {"host", "nccl"},
                "where ranks meet: in host memory, or each is a process with "
                "a GPU, and NCCL connects them (default host)");
  AddChoiceFlag(app, "--reduce", &flags.reduce, {"exact", "native"},
                "of nccl: sums in rank order, with the bits of every other "
                "way to train, or NCCL's own (default exact)");
  AddTextFlag(app, "--id-file", &flags.id_file,
              "of nccl: a new file that all ranks see, by which they find each "
              "other (default: by mpirun, or MASTER_ADDR and MASTER_PORT, or "
              "Slurm's step)");
  AddIntFlag(app, "--rank-timeout", &flags.rank_timeout, 0, 1'000'000,
             "seconds that a rank may hold the others up; 0: for ever "
             "(default 120)");
  AddIntFlag(app, "--stage", &flags.stage, 0, 3, "of ZeRO (default 3)");
  AddIntFlag(app, "--shard-group", &flags.shard_group, 1, 1'000'000,
             "ranks that share one set of shards, as those of a host; other "
             "groups keep copies (default: all ranks)");
  AddChoiceFlag(app, "--optimizer-span", &flags.optimizer_span,
                {"group", "world"},
                "optimizer states are cut among the ranks of a group, or among "
                "all (default group)");
  AddTextFlag(app, "--plan", &flags.plan,
              "file of castor plan -o with budgets, stage, chunks and policy, "
              "instead of their flags");
  AddTextFlag(app, "--config", &flags.config,
              "file of the engine's options (castor.config/1, "
              "collectives/zero_config.h); what it leaves out flags say, and "
              "nothing is said twice");
  AddSizeFlag(app, "--device-budget", &train.device_budget,
              "device bytes per rank (default: room for everything)");
  AddSizeFlag(app, "--host-budget", &train.host_budget,
              "pinned host bytes per rank (default 0)");
  AddTextListFlag(app, "--nvme", &flags.nvme, kNvmeFlagHelp);
  AddSizeFlag(app, "--chunk", &train.chunk_size,
              "chunk size (default: searched between 1 MiB and an eighth of "
              "the device budget)");
  AddTextFlag(app, "--layout", &flags.layout,
              "file of castor search -o that says where every parameter lies, "
              "instead of --chunk");
  AddIntFlag(app, "--prefetch", &flags.prefetch, 0, 1024,
             "gathers kept under way ahead of use (default 3)");
  AddSwitch(app, "--no-prefetch", &flags.no_prefetch,
            "gather on demand only, as --prefetch 0");
  AddChoiceFlag(app, "--policy", &flags.policy, {"auto", "planned"},
                "who decides which copies stay on the device: next use "
                "weighed by cost, or the cheapest plan (default auto)");
  AddTextListFlag(app, "--limit", &flags.limit, kLimitFlagHelp);
  AddTextListFlag(app, "--place", &flags.place, kPlaceFlagHelp);
  AddTextFlag(app, "--machine", &flags.machine,
              "file of a machine's speeds (castor.machine/1): what moves "
              "between device, host and nvme takes at least its time, and is "
              "weighed by it; a link that it does not name is not slowed");
  AddTextFlag(app, "--record", &flags.record,
              "file for the run's events, for castor report");
  AddTextFlag(
      app, "--trace", &flags.trace,
      "file for the trace of the last step (castor.trace/1), for castor "
      "search --order trace");
  AddTextFlag(app, "--save", &train.save,
              "folder for checkpoints: one after the last step, also of a run "
              "that is stopped");
  AddIntFlag(app, "--save-every", &flags.save_every, 1, 1'000'000'000,
             "save after every so many steps too");
  AddIntFlag(app, "--keep", &flags.keep, 1, 1'000'000'000,
             "checkpoints that stay in the folder (default: all)");
  AddSwitch(app, "--save-async", &train.save_async,
            "save while the next step computes");
  AddTextFlag(app, "--resume", &train.resume,
              "checkpoint to go on from, or a folder of them for the latest; "
              "where it is that of --save, it may hold none yet");
  AddTextFlag(app, "--init", &train.init,
              "weights to begin with instead of random ones: a checkpoint, or "
              "a model of the same names and shapes (.safetensors, an index, a "
              "folder)");
  AddIntFlag(app, "--digest-at", &flags.digest_at, 1, 1'000'000'000,
             "print the weights' digest after this step too");
  AddSwitch(app, "--reference", &flags.reference,
            "train in plain arrays on one rank, without Castor and its flags");
  AddSwitch(app, "--json", &flags.json, "the summary as one JSON document");
  AddSwitch(app, "--print-model", &flags.print_model,
            "print the parameters, a list for castor search - --order file, "
            "and train nothing");
  NoteGivenFlags(app, &flags.given);
}

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

// The first of `said` that `flag` says too; empty where there is none.
std::string SaidTwice(const std::string& flag,
                      const std::vector<std::string>& said) {
  // Flags, and the keys of a config that mean the same, or what they begin
  // with.
  static constexpr std::pair<std::string_view, std::string_view> kSame[] = {
      {"--stage", "stage"},
      {"--shard-group", "shard_group"},
      {"--optimizer-span", "optimizer_span"},
      {"--clip", "clip_norm"},
      {"--prefetch", "prefetch_depth"},
      {"--no-prefetch", "prefetch_depth"},
      {"--policy", "policy"},
      {"--grad-mode", "grad_mode"},
      {"--accumulation-order", "accumulation_order"},
      {"--device-budget", "device_budget_bytes"},
      {"--host-budget", "host_budget_bytes"},
      {"--nvme", "nvme[]."},
      {"--chunk", "chunk.bytes"},
      {"--layout", "chunk."},
      {"--weight-decay", "optimizer.weight_decay"},
      {"--weight-decay", "optimizer.kind"},
      {"--decay", "groups[]."},
      {"--loss-scale", "loss_scale."}};
  for (const auto& [name, key] : kSame) {
    if (name != flag) continue;
    for (const std::string& each : said) {
      if (each.starts_with(key)) return each;
    }
  }
  return "";
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
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(flags.config));
  CASTOR_ASSIGN_OR_RETURN(const std::string text,
                          file.ReadAll(kMaxConfigBytes));
  ZeroOptions base;
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
  std::vector<std::string> said;
  Result<ZeroOptions> zero = ParseZeroConfig(text, std::move(base), &said);
  const std::string where = QuotedPath(flags.config);
  if (!zero.ok()) return zero.status().WithContext(where);
  for (const std::string& flag : flags.given) {
    const std::string key = SaidTwice(flag, said);
    if (key.empty()) continue;
    return InvalidArgument(
        fmt::format("{} and {} in {} each say the same: leave one away", flag,
                    Quoted(key), where));
  }
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
  options->config = *std::move(zero);
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
