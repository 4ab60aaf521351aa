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
              {"--prefetch", flags.prefetch.has_value()},
              {"--compute", !flags.compute.empty()},
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
  options->prefetch = zero.prefetch;
  options->step_compute_ns = zero.step_compute_ns;
  options->policy = zero.policy;
  options->grad_mode = zero.grad_mode;
  options->accumulation = zero.accumulation;
  options->home_limits = zero.home_limits;
  options->home_rules = zero.home_rules;
  options->plan = std::move(loaded);
  return OkStatus();
}

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
  base.prefetch = options->prefetch;
  base.step_compute_ns = options->step_compute_ns;
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
  options->prefetch = zero->prefetch;
  options->step_compute_ns = zero->step_compute_ns;
  options->policy = zero->policy;
  options->layout = zero->layout;
  options->home_limits = zero->home_limits;
  options->home_rules = zero->home_rules;
  options->machine = zero->machine;
  options->config = std::move(*zero);
  return OkStatus();
}

}  // namespace castor::gpt
