// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_option_files.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/quote.h"
#include "chunk/param_spec.h"
#include "collectives/optimizer_groups.h"
#include "collectives/plan_file.h"
#include "collectives/zero_config.h"
#include "collectives/zero_options.h"
#include "tools/examples/gpt/gpt_params.h"
#include "tools/models/input_file.h"
#include "tools/models/plan_reader.h"

namespace castor::gpt {
namespace {

// Far more than there is to say.
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

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

}  // namespace

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

}  // namespace castor::gpt
