// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/plan_file.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/json_value.h"
#include "chunk/base/tier.h"
#include "placement/run_event.h"

namespace castor {
namespace {

JsonValue ChunkJson(const PlanFile& plan) {
  if (!plan.layout.empty()) {
    return JsonValue::Object({{"layout", plan.layout}});
  }
  if (plan.chunk_size) {
    return JsonValue::Object({{"bytes", plan.chunk_size->count()}});
  }
  return JsonValue::Object({{"min_bytes", plan.min_chunk.count()},
                            {"max_bytes", plan.max_chunk.count()}});
}

JsonValue LimitsJson(const StaticLimits& limits) {
  JsonValue json = JsonValue::Array();
  for (size_t k = 0; k < limits.size(); ++k) {
    for (const Tier tier : kAllTiers) {
      const std::optional<StateLimit>& limit = limits[k].on(tier);
      if (!limit) continue;
      JsonValue one = JsonValue::Object(
          {{"state", StateKindName(static_cast<StateKind>(k))},
           {"tier", TierName(tier)}});
      if (const Bytes* const bytes = std::get_if<Bytes>(&*limit)) {
        one["bytes"] = bytes->count();
      } else {
        one["fraction"] = std::get<double>(*limit);
      }
      json.Append(std::move(one));
    }
  }
  return json;
}

JsonValue RulesJson(const std::vector<PlacementRule>& rules) {
  JsonValue json = JsonValue::Array();
  for (const PlacementRule& rule : rules) {
    CASTOR_CHECK(!rule.decide);
    JsonValue& one = json.Append(JsonValue::Object(
        {{"tier", TierName(rule.tier)}, {"glob", rule.glob}}));
    if (rule.dtype) one["dtype"] = DTypeName(*rule.dtype);
    if (rule.least > Bytes(0)) one["least_bytes"] = rule.least.count();
    if (rule.most) one["most_bytes"] = rule.most->count();
    if (rule.state) one["state"] = StateKindName(*rule.state);
  }
  return json;
}

}  // namespace

bool HasLimits(const StaticLimits& limits) {
  for (const StateLimits& of_state : limits) {
    if (of_state.device || of_state.host || of_state.nvme) return true;
  }
  return false;
}

std::string WritePlan(const PlanFile& plan) {
  JsonValue json;
  json["schema"] = kPlanSchema;
  json["model"] = JsonValue::Object({{"name", plan.model},
                                     {"tensors", plan.tensors},
                                     {"elements", plan.elements.count()}});
  json["world"] = plan.world;
  json["stage"] = plan.stage;
  json["align_elements"] = plan.align.count();
  json["chunk"] = ChunkJson(plan);
  json["device_budget_bytes"] = plan.device_budget.count();
  json["host_budget_bytes"] = plan.host_budget.count();
  if (plan.nvme) json["nvme_bytes"] = plan.nvme->count();
  json["prefetch_depth"] = plan.prefetch_depth;
  if (plan.prefetch != PrefetchMode::kDepth) {
    json["prefetch"] = PrefetchModeName(plan.prefetch);
  }
  if (plan.step_compute_ns > 0) json["step_compute_ns"] = plan.step_compute_ns;
  json["policy"] = PlanPolicyName(plan.policy);
  if (plan.shard_group > 0) json["shard_group"] = plan.shard_group;
  if (plan.optimizer_span != OptimizerSpan::kGroup) {
    json["optimizer_span"] = OptimizerSpanName(plan.optimizer_span);
  }
  json["grad_mode"] = GradModeName(plan.grad_mode);
  json["accumulation_order"] = AccumulationOrderName(plan.accumulation);
  if (HasLimits(plan.limits)) json["limits"] = LimitsJson(plan.limits);
  if (!plan.rules.empty()) json["rules"] = RulesJson(plan.rules);
  if (!plan.machine.empty()) json["machine"] = plan.machine;
  return json.Dump(2) + "\n";
}

Status CheckPlanFits(const PlanFile& plan, std::span<const ParamSpec> params,
                     int world) {
  if (plan.world != world) {
    return InvalidArgument(
        fmt::format("the plan is for {} ranks, and there are {}: plan again "
                    "with castor plan --world {}",
                    plan.world, world, world));
  }
  Elements elements;
  for (const ParamSpec& spec : params) {
    CASTOR_ASSIGN_OR_RETURN(const Elements count,
                            CountElements(spec.shape, spec.dtype));
    elements += count;
  }
  const auto tensors = static_cast<int64_t>(params.size());
  if (plan.tensors != tensors || plan.elements != elements) {
    return InvalidArgument(fmt::format(
        "the plan is for {}, {} tensors of {} elements in all, and the model "
        "has {} of {}: plan again for this model",
        plan.model, plan.tensors, plan.elements.count(), tensors,
        elements.count()));
  }
  return OkStatus();
}

Status ApplyPlan(const PlanFile& plan, ZeroOptions* options) {
  if (plan.nvme && options->nvme.empty()) {
    return InvalidArgument(
        fmt::format("the plan puts up to {} bytes on NVMe: name a directory "
                    "for them",
                    plan.nvme->count()));
  }
  if (!plan.nvme && !options->nvme.empty()) {
    return InvalidArgument(
        "the plan puts nothing on NVMe: leave the directory away, or plan "
        "again with castor plan --nvme");
  }
  options->stage = plan.stage;
  options->shard_group = plan.shard_group;
  options->optimizer_span = plan.optimizer_span;
  options->align = plan.align;
  options->chunk_size = plan.chunk_size;
  options->min_chunk = plan.min_chunk;
  options->max_chunk = plan.max_chunk;
  options->device_budget = plan.device_budget;
  options->host_budget = plan.host_budget;
  options->prefetch_depth = plan.prefetch_depth;
  options->prefetch = plan.prefetch;
  options->step_compute_ns = plan.step_compute_ns;
  options->policy = plan.policy;
  options->grad_mode = plan.grad_mode;
  options->accumulation = plan.accumulation;
  if (HasLimits(plan.limits)) options->home_limits = plan.limits;
  options->home_rules = plan.rules;
  if (options->nvme.size() == 1 && !options->nvme[0].size) {
    options->nvme[0].size = plan.nvme;
  }
  return OkStatus();
}

}  // namespace castor
