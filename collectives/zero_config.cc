// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/layout_file.h"
#include "chunk/text/quote.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "collectives/options/option_words.h"
#include "collectives/world/value_hash.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/nvme/nvme_option.h"
#include "placement/homes/home_limits.h"
#include "placement/homes/static_policy.h"
#include "placement/machine/tier_model_file.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/state_kind.h"
#include "placement/trace/step_trace.h"

namespace castor {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kAlign = 64;
constexpr int64_t kMostAlign = int64_t{1} << 30;
constexpr int64_t kMostDepth = 1024;
constexpr double kMostReal = 1e30;
constexpr uint32_t kFlags = kTrainFlag | kPlanFlag | kSimulateFlag;

std::string_view LossScalingName(LossScalingKind kind) {
  return kind == LossScalingKind::kNone     ? "none"
         : kind == LossScalingKind::kStatic ? "static"
                                            : "dynamic";
}

void AddSharing(OptionTable& t, ZeroOptions* o) {
  t.Whole("stage", &o->stage, 0, 3)
      .Flag("--stage", "ZeRO stage")
      .For(kFlags | kPlanMust);
  t.Whole("shard_group", &o->shard_group, 0, kMostRanks)
      .Flag("--shard-group",
            "ranks that share one set of shards, as those of a host; other "
            "groups keep copies")
      .Default("all ranks")
      .For(kFlags | kPlanKey);
  t.Choice("optimizer_span", &o->optimizer_span, OptimizerSpanName,
           {OptimizerSpan::kGroup, OptimizerSpan::kWorld})
      .Flag("--optimizer-span",
            "optimizer states are cut among the ranks of a group, or among all")
      .For(kTrainFlag | kPlanFlag | kPlanKey);
}

// A depth, or "deadlines".
Option& AddPrefetch(OptionTable& t, Prefetch* prefetch) {
  Option& row = t.Add(OptionType::kWhole, "prefetch", "N|deadlines");
  row.most = kMostDepth;
  row.names = {std::string(kPrefetchByDeadlines)};
  row.set = [prefetch](const OptionScalar& scalar) {
    const int64_t* const depth = std::get_if<int64_t>(&scalar);
    prefetch->mode =
        depth != nullptr ? PrefetchMode::kDepth : PrefetchMode::kDeadlines;
    if (depth != nullptr) prefetch->depth = static_cast<int>(*depth);
    return OkStatus();
  };
  row.get = [prefetch]() -> std::optional<OptionScalar> {
    if (prefetch->mode == PrefetchMode::kDepth) {
      return int64_t{prefetch->depth};
    }
    return std::string(kPrefetchByDeadlines);
  };
  return row;
}

void AddFetching(OptionTable& t, ZeroOptions* o) {
  t.Switch("keep_copies", &o->keep_copies);
  t.Switch("poison", &o->poison).For(kOfRank);
  AddPrefetch(t, &o->prefetch)
      .Flag("--prefetch",
            "gathers under way ahead of use, or deadlines: each as late as it "
            "may be begun, by the machine's links and the step's compute time")
      .For(kFlags | kPlanMust);
  t.Add(OptionType::kSwitch, "")
      .Flag("--no-prefetch", "gather on demand only, as --prefetch 0",
            [o](std::string_view) {
              o->prefetch = {.depth = 0};
              return OkStatus();
            })
      .Same({"prefetch", "--prefetch"})
      .For(kTrainFlag);
  t.Time("step_compute_ns", &o->step_compute_ns, kMaxStepNs)
      .Flag("--compute", "how long a rank computes in a step, such as 850ms")
      .Default("unknown")
      .For(kFlags | kPlanKey);
  t.Choice("policy", &o->policy, PlanPolicyName,
           {PlanPolicy::kAuto, PlanPolicy::kPlanned})
      .Flag("--policy",
            "who decides which copies stay on the device: next use weighed by "
            "cost, or the cheapest plan")
      .For(kFlags | kPlanMust);
}

void AddGradients(OptionTable& t, ZeroOptions* o) {
  t.Real("clip_norm", &o->clip_norm, 0, kMostReal)
      .Flag("--clip", "largest global norm of the gradient; 0: none")
      .For(kFlags);
  t.Switch("count_norm", &o->count_norm);
  t.Switch("average_micro_batches", &o->average_micro_batches);
  t.Switch("own_lease_ends", &o->own_lease_ends);
  t.Choice("grad_mode", &o->grad_mode, GradModeName,
           {GradMode::kSeparate, GradMode::kFp32, GradMode::kReuse})
      .Flag("--grad-mode",
            "gradients are of the parameters' type, or fp32, or take the place "
            "of parameters")
      .For(kFlags | kPlanMust);
  t.Switch("borrow_grads", &o->borrow_grads);
  t.Switch("guess_updates", &o->guess_updates);
  t.Choice("accumulation_order", &o->accumulation, AccumulationOrderName,
           {AccumulationOrder::kEach, AccumulationOrder::kLast})
      .Flag("--accumulation-order",
            "every micro-batch's gradients are reduced, or they are added up, "
            "whole, and reduced once")
      .For(kTrainFlag | kPlanFlag | kPlanMust);
}

void FillDrive(OptionTable& t, NvmeOption* drive) {
  t.Text("directory", &drive->directory).Must();
  t.Size("size_bytes", &drive->size);
}

void AddMemory(OptionTable& t, ZeroOptions* o, EngineFiles* files) {
  t.Size("device_budget_bytes", &o->device_budget)
      .Flag("--device-budget", "device bytes of a rank")
      .Default("room for everything")
      .For(kFlags | kPlanMust | kOfRank);
  t.Size("host_budget_bytes", &o->host_budget)
      .Flag("--host-budget", "pinned host bytes of a rank")
      .For(kFlags | kPlanMust | kOfRank);
  t.List("nvme", FillDrive, &o->nvme)
      .Flag("--nvme", kNvmeFlagHelp,
            [o](std::string_view text) { return ParseDrive(text, &o->nvme); })
      .For(kTrainFlag | kOfRank);
  t.Size("chunk.bytes", &o->chunk_size)
      .Flag("--chunk", "chunk size")
      .Default("searched between 1 MiB and an eighth of the device budget")
      .Same({"chunk.layout"})
      .For(kTrainFlag | kPlanFlag | kPlanKey);
  t.Size("chunk.min_bytes", &o->min_chunk).For(kPlanKey);
  t.Size("chunk.max_bytes", &o->max_chunk).For(kPlanKey);
  t.Text("chunk.layout", &files->layout)
      .Form("FILE")
      .Flag("--layout",
            "file of castor search -o that says where every parameter lies")
      .Same({"chunk", "--chunk"})
      .For(kFlags | kPlanKey | kOfRank);
  t.Whole("chunk.align_elements", &o->align, kAlign, kMostAlign)
      .MultipleOf(kAlign)
      .Flag("--align", "parameters start at multiples of N elements")
      .For(kPlanFlag | kPlanMust);
  t.Text("machine", &files->machine)
      .Form("FILE")
      .Flag("--machine",
            "file of a machine's speeds, of castor probe, by which fetches are "
            "weighed and times are told")
      .For(kFlags | kPlanKey | kOfRank);
}

// One of ZeroOptions::home_limits, as a document has it.
struct OneLimit {
  std::optional<std::string> state = {};
  Tier tier = Tier::kDevice;
  std::optional<Bytes> bytes = {};
  std::optional<double> fraction = {};
};

// Of whichever optimizer, which may not be known yet.
Option& AddState(OptionTable& t, std::optional<std::string>* to) {
  Option& state = t.Add(OptionType::kText, "state");
  state.set = [to](const OptionScalar& scalar) -> Status {
    *to = std::get<std::string>(scalar);
    if (IsStateName(**to)) return OkStatus();
    return InvalidArgument("is no name of a state, such as param");
  };
  state.get = [to]() -> std::optional<OptionScalar> {
    if (!*to) return std::nullopt;
    return **to;
  };
  return state;
}

Option& AddTier(OptionTable& t, Tier* to) {
  return t.Choice("tier", to, TierName, {kAllTiers.begin(), kAllTiers.end()});
}

void FillLimit(OptionTable& t, OneLimit* one) {
  AddState(t, &one->state).Must();
  AddTier(t, &one->tier).Must();
  t.Size("bytes", &one->bytes);
  t.Real("fraction", &one->fraction, 0, 1);
}

Status TakeLimit(const OneLimit& one, HomeLimits* limits) {
  if (one.bytes.has_value() == one.fraction.has_value()) {
    return InvalidArgument(
        fmt::format("has {} \"bytes\" {} \"fraction\": give one of them",
                    one.bytes ? "both" : "neither", one.bytes ? "and" : "nor"));
  }
  return AddLimit({*one.state, one.tier,
                   one.bytes ? StateLimit(*one.bytes) : *one.fraction},
                  limits);
}

std::vector<OneLimit> LimitsIn(const HomeLimits& limits) {
  std::vector<OneLimit> all;
  if (!limits) return all;
  for (const HomeLimit& limit : *limits) {
    OneLimit& one = all.emplace_back();
    one.state = limit.state;
    one.tier = limit.tier;
    if (const Bytes* const bytes = std::get_if<Bytes>(&limit.amount)) {
      one.bytes = *bytes;
    } else {
      one.fraction = std::get<double>(limit.amount);
    }
  }
  return all;
}

void FillRule(OptionTable& t, PlacementRule* rule) {
  AddTier(t, &rule->tier).Must();
  t.Text("glob", &rule->glob);
  Option& dtype = t.Add(OptionType::kText, "dtype");
  dtype.set = [rule](const OptionScalar& scalar) -> Status {
    rule->dtype = ParseDType(std::get<std::string>(scalar));
    if (rule->dtype) return OkStatus();
    return InvalidArgument("is no type, such as BF16");
  };
  dtype.get = [rule]() -> std::optional<OptionScalar> {
    if (!rule->dtype) return std::nullopt;
    return std::string(DTypeName(*rule->dtype));
  };
  t.Size("least_bytes", &rule->least);
  t.Size("most_bytes", &rule->most);
  AddState(t, &rule->state);
}

void AddHomes(OptionTable& t, ZeroOptions* o) {
  t.List<OneLimit>(
       "home_limits", FillLimit,
       [o](const OneLimit& one) { return TakeLimit(one, &o->home_limits); },
       [o] { return LimitsIn(o->home_limits); })
      .Flag(
          "--limit",
          "STATE@TIER=AMOUNT: most of a state's bytes on a tier, as a size "
          "or a percentage: exp_avg@host=12GiB, param@device=25%; STATE may "
          "be all",
          [o](std::string_view text) {
            return ParseLimit(text, &o->home_limits);
          },
          [o] { return LimitWords(o->home_limits); })
      .For(kFlags | kPlanKey);
  t.List("home_rules", FillRule, &o->home_rules)
      .Flag(
          "--place",
          "TIER:GLOB[,state=S][,type=T][,least=SIZE][,most=SIZE]: parameters "
          "by name, and by their type and size, live on a tier; the first "
          "that matches holds",
          [o](std::string_view text) {
            return ParseRule(text, &o->home_rules);
          },
          [o] { return RuleWords(o->home_rules); })
      .For(kFlags | kPlanKey);
}

// One of OptimizerOptions::states, as a document has it.
struct StateName {
  std::string name;
};

void AddOptimizer(OptionTable& t, OptimizerOptions* o) {
  t.Choice("optimizer.kind", &o->kind, OptimizerName,
           {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd,
            OptimizerKind::kLion, OptimizerKind::kCustom})
      .Then([o] {
        // Which a command line may name before the kind.
        std::vector<std::string> states = std::move(o->states);
        *o = DefaultOptimizerOptions(o->kind);
        o->states = std::move(states);
      })
      .Flag("--optimizer", "whose states there are")
      .For(kPlanFlag | kSimulateFlag);
  t.List<StateName>(
       "optimizer.states",
       [](OptionTable& row, StateName* one) {
         row.Text("name", &one->name).Must();
       },
       [o](const StateName& one) {
         return o->states.push_back(one.name), OkStatus();
       },
       [o] {
         std::vector<StateName> all;
         for (const std::string& name : o->states) all.push_back({name});
         return all;
       })
      .Flag(
          "--state",
          "NAME of a state that a custom optimizer keeps, of a parameter's "
          "shape; repeatable",
          [o](std::string_view name) {
            return o->states.emplace_back(name), OkStatus();
          },
          [o] { return o->states; })
      .For(kPlanFlag);
  t.Choice("optimizer.span", &o->span, UpdateSpanName,
           {UpdateSpan::kElements, UpdateSpan::kParameter});
  t.Choice("optimizer.moment_dtype", &o->moment_dtype, DTypeName,
           {DType::kF32, DType::kBF16, DType::kBlocks8})
      .Flag("--moments", "what moments are kept in")
      .For(kPlanFlag | kSimulateFlag);
  t.Real("optimizer.weight_decay", &o->weight_decay, 0, kMostReal)
      .Flag("--weight-decay", "of AdamW")
      .Same({"optimizer.kind"})
      .For(kTrainFlag);
  t.Real("optimizer.momentum", &o->momentum, 0, kMostReal)
      .Flag("--momentum", "of sgd, which keeps a moment for it")
      .For(kPlanFlag);
  t.Real("optimizer.beta1", &o->beta1);
  t.Real("optimizer.beta2", &o->beta2);
  t.Real("optimizer.eps", &o->eps);
  t.Real("optimizer.dampening", &o->dampening);
  t.Switch("optimizer.nesterov", &o->nesterov);
  t.Switch("optimizer.stochastic_rounding", &o->stochastic_rounding);
  t.Whole("optimizer.seed", &o->seed, 0, kMost);
}

void FillGroup(OptionTable& t, OptimizerGroup* group) {
  t.Text("name", &group->name).Must();
  t.Real("lr_scale", &group->lr_scale);
  t.Real("lr", &group->lr);
  t.Real("beta1", &group->beta1);
  t.Real("beta2", &group->beta2);
  t.Real("eps", &group->eps);
  t.Real("weight_decay", &group->weight_decay);
  t.Real("momentum", &group->momentum);
  t.Choice("kind", &group->kind, OptimizerName,
           {OptimizerKind::kAdamW, OptimizerKind::kAdam});
  t.Whole("states", &group->states, 0, kMaxOptimizerStates);
  t.Choice("span", &group->span, UpdateSpanName,
           {UpdateSpan::kElements, UpdateSpan::kParameter});
}

Status ReadLossScale(std::string_view text, LossScaling* scaling) {
  if (text == LossScalingName(LossScalingKind::kDynamic)) {
    scaling->kind = LossScalingKind::kDynamic;
    return OkStatus();
  }
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, scaling->initial);
  if (read.ec != std::errc() || read.ptr != end || !(scaling->initial > 0)) {
    return InvalidArgument(fmt::format(
        "{} is neither a positive number nor dynamic", Quoted(text)));
  }
  scaling->kind = LossScalingKind::kStatic;
  return OkStatus();
}

void AddLossScale(OptionTable& t, LossScaling* scaling) {
  t.Choice("loss_scale.kind", &scaling->kind, LossScalingName,
           {LossScalingKind::kNone, LossScalingKind::kStatic,
            LossScalingKind::kDynamic});
  t.Real("loss_scale.initial", &scaling->initial);
  t.Real("loss_scale.growth", &scaling->growth);
  t.Whole("loss_scale.growth_interval", &scaling->growth_interval, 1, kMost);
  t.Real("loss_scale.backoff", &scaling->backoff);
  t.Whole("loss_scale.hysteresis", &scaling->hysteresis, 1,
          std::numeric_limits<int32_t>::max());
  t.Real("loss_scale.least", &scaling->least);
  t.Real("loss_scale.most", &scaling->most);
  t.Words("X|dynamic")
      .Flag("--loss-scale",
            "factor of the loss, for f16; dynamic: from 65536 on, less where "
            "gradients overflow",
            [=](std::string_view text) { return ReadLossScale(text, scaling); })
      .Default("none")
      .Same({"loss_scale"})
      .For(kTrainFlag);
}

}  // namespace

Result<std::string> ReadNamedFile(const std::string& path,
                                  uint64_t most_bytes) {
  // A pipe without a writer would be waited for.
  std::error_code error;
  if (std::filesystem::is_fifo(path, error)) {
    return InvalidArgument(
        fmt::format("{} is a pipe: name a file", QuotedPath(path)));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 65536> part;
  while (file) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > most_bytes) {
      return InvalidArgument(
          fmt::format("{} has more than {} bytes, which is no such file",
                      QuotedPath(path), most_bytes));
    }
  }
  if (file.eof()) return text;
  return InvalidArgument(fmt::format(
      "cannot read {}: name a file that is there, from the working directory",
      QuotedPath(path)));
}

OptionTable EngineOptions(ZeroOptions* options, EngineFiles* files) {
  OptionTable table;
  AddSharing(table, options);
  AddGradients(table, options);
  AddMemory(table, options, files);
  AddFetching(table, options);
  AddHomes(table, options);
  AddOptimizer(table, &options->optimizer);
  table.List("groups", FillGroup, &options->groups);
  AddLossScale(table, &options->loss_scaling);
  return table;
}

std::vector<std::pair<std::string, int64_t>> SharedOptions(
    const OptionTable& table) {
  std::vector<std::pair<std::string, int64_t>> shared;
  for (const Option& row : table.rows()) {
    if (row.key.empty() || (row.uses & kOfRank) != 0) continue;
    OptionTable one;
    one.Add(row);
    internal::ValueHash hash;
    hash.Add(WriteOptions(one).Dump());
    shared.emplace_back(row.key, hash.signed_value());
  }
  return shared;
}

std::string WriteConfig(const OptionTable& table) {
  JsonValue config = JsonValue::Object({{"schema", kConfigSchema}});
  const JsonValue options = WriteOptions(table);
  for (const std::string& key : options.keys()) config[key] = options[key];
  return config.Dump() + "\n";
}

Result<std::vector<std::string>> ReadConfig(std::string_view text,
                                            const OptionTable& table) {
  OptionTable document = table;
  document.Schema(kConfigSchema);
  Result<std::vector<std::string>> said = ReadOptions(text, document);
  // Of the caller's own, as a flag is.
  if (!said.ok()) return InvalidArgument(std::string(said.status().message()));
  if (std::count(said->begin(), said->end(), "chunk.layout") > 0 &&
      std::count(said->begin(), said->end(), "chunk.bytes") > 0) {
    return InvalidArgument(
        "chunk.layout and chunk.bytes exclude each other: a layout has its own "
        "chunks; leave one away");
  }
  return said;
}

Status ReadEngineFiles(const EngineFiles& files, ZeroOptions* options) {
  if (!files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(const std::string text,
                            ReadNamedFile(files.layout, kMaxLayoutBytes));
    Result<LayoutFile> layout = ParseLayout(text);
    if (!layout.ok()) {
      return layout.status().WithContext(QuotedPath(files.layout));
    }
    options->layout = std::make_shared<const LayoutFile>(*std::move(layout));
  }
  if (!files.machine.empty()) {
    CASTOR_ASSIGN_OR_RETURN(const std::string text,
                            ReadNamedFile(files.machine, kMaxTierModelBytes));
    const Result<TierModel> machine = ParseTierModel(text);
    if (!machine.ok()) {
      return machine.status().WithContext(QuotedPath(files.machine));
    }
    options->machine = *machine;
  }
  return OkStatus();
}

Result<ZeroOptions> ReadZeroConfig(std::string_view text) {
  ZeroOptions options;
  EngineFiles files;
  CASTOR_RETURN_IF_ERROR(
      ReadConfig(text, EngineOptions(&options, &files)).status());
  CASTOR_RETURN_IF_ERROR(ReadEngineFiles(files, &options));
  return options;
}

}  // namespace castor
