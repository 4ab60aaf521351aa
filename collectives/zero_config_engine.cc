// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What an engine does, where it has memory, and what it updates with.

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "collectives/internal/config_fields.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_config_parts.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/plan.h"
#include "placement/step_trace.h"

namespace castor::internal {
namespace {

constexpr int kMostInt = std::numeric_limits<int>::max();

void AddGroups(ConfigFields& fields, ZeroOptions* options) {
  fields.List(
      "groups",
      [=](const JsonPath&) {
        options->groups.emplace_back();
        return OkStatus();
      },
      [=](const JsonPath& path) {
        return options->groups.back().name.empty() ? MissingKey(path, "name")
                                                   : OkStatus();
      });
  fields.Text("groups[].name",
              [=](std::string_view v) { options->groups.back().name = v; });
  fields.Number("groups[].lr_scale",
                [=](double v) { options->groups.back().lr_scale = v; });
  const auto real = [&](const char* key,
                        std::optional<double> OptimizerGroup::*member) {
    fields.Number(std::string("groups[].").append(key),
                  [=](double v) { options->groups.back().*member = v; });
  };
  real("lr", &OptimizerGroup::lr);
  real("beta1", &OptimizerGroup::beta1);
  real("beta2", &OptimizerGroup::beta2);
  real("eps", &OptimizerGroup::eps);
  real("weight_decay", &OptimizerGroup::weight_decay);
}

void AddLossScale(ConfigFields& fields, LossScaling* scaling) {
  fields.Object("loss_scale");
  fields.OneOf(
      "loss_scale.kind",
      ConfigNames<LossScalingKind>{{"none", LossScalingKind::kNone},
                                   {"static", LossScalingKind::kStatic},
                                   {"dynamic", LossScalingKind::kDynamic}},
      [=](LossScalingKind v) { scaling->kind = v; });
  const auto real = [&](const char* key, double LossScaling::*member) {
    fields.Number(std::string("loss_scale.").append(key),
                  [=](double v) { scaling->*member = v; });
  };
  real("initial", &LossScaling::initial);
  real("growth", &LossScaling::growth);
  real("backoff", &LossScaling::backoff);
  real("least", &LossScaling::least);
  real("most", &LossScaling::most);
  fields.Whole("loss_scale.growth_interval", 1, ConfigFields::kMost,
               [=](int64_t v) { scaling->growth_interval = v; });
  fields.Whole(
      "loss_scale.hysteresis", 1, std::numeric_limits<int32_t>::max(),
      [=](int64_t v) { scaling->hysteresis = static_cast<int32_t>(v); });
}

}  // namespace

void AddTrainingFields(ConfigFields& fields, ZeroOptions* options) {
  fields.Whole("stage", 0, 3,
               [=](int64_t v) { options->stage = static_cast<int>(v); });
  fields.Whole("shard_group", 0, kMostInt,
               [=](int64_t v) { options->shard_group = static_cast<int>(v); });
  fields.OneOf(
      "optimizer_span",
      ConfigNames<OptimizerSpan>{
          {OptimizerSpanName(OptimizerSpan::kGroup), OptimizerSpan::kGroup},
          {OptimizerSpanName(OptimizerSpan::kWorld), OptimizerSpan::kWorld}},
      [=](OptimizerSpan v) { options->optimizer_span = v; });
  fields.Number("clip_norm", [=](double v) { options->clip_norm = v; });
  fields.Whole("prefetch_depth", 0, kMostInt, [=](int64_t v) {
    options->prefetch_depth = static_cast<int>(v);
  });
  fields.OneOf(
      "prefetch",
      ConfigNames<PrefetchMode>{
          {PrefetchModeName(PrefetchMode::kDepth), PrefetchMode::kDepth},
          {PrefetchModeName(PrefetchMode::kDeadlines),
           PrefetchMode::kDeadlines}},
      [=](PrefetchMode v) { options->prefetch = v; });
  fields.Whole("step_compute_ns", 0, kMaxStepNs,
               [=](int64_t v) { options->step_compute_ns = v; });
  fields.OneOf(
      "policy",
      ConfigNames<PlanPolicy>{
          {PlanPolicyName(PlanPolicy::kAuto), PlanPolicy::kAuto},
          {PlanPolicyName(PlanPolicy::kPlanned), PlanPolicy::kPlanned}},
      [=](PlanPolicy v) { options->policy = v; });
  fields.OneOf("grad_mode",
               ConfigNames<GradMode>{
                   {GradModeName(GradMode::kSeparate), GradMode::kSeparate},
                   {GradModeName(GradMode::kFp32), GradMode::kFp32},
                   {GradModeName(GradMode::kReuse), GradMode::kReuse}},
               [=](GradMode v) { options->grad_mode = v; });
  fields.OneOf("accumulation_order",
               ConfigNames<AccumulationOrder>{
                   {AccumulationOrderName(AccumulationOrder::kEach),
                    AccumulationOrder::kEach},
                   {AccumulationOrderName(AccumulationOrder::kLast),
                    AccumulationOrder::kLast}},
               [=](AccumulationOrder v) { options->accumulation = v; });
  fields.Refuse("update_order",
                "every step updates chunks in the same order; leave it away");
}

void AddMemoryFields(ConfigFields& fields, ZeroConfig* config) {
  ZeroOptions* const options = &config->engine;
  fields.Size("device_budget_bytes",
              [=](Bytes v) { options->device_budget = v; });
  fields.Size("host_budget_bytes", [=](Bytes v) { options->host_budget = v; });
  fields.List(
      "nvme",
      [=](const JsonPath&) {
        options->nvme.emplace_back();
        return OkStatus();
      },
      [=](const JsonPath& path) {
        return options->nvme.back().directory.empty()
                   ? MissingKey(path, "directory")
                   : OkStatus();
      });
  fields.Text("nvme[].directory",
              [=](std::string_view v) { options->nvme.back().directory = v; });
  fields.Size("nvme[].size_bytes",
              [=](Bytes v) { options->nvme.back().size = v; });
  fields.Object("chunk");
  fields.Size("chunk.bytes", [=](Bytes v) { options->chunk_size = v; });
  fields.Size("chunk.min_bytes", [=](Bytes v) { options->min_chunk = v; });
  fields.Size("chunk.max_bytes", [=](Bytes v) { options->max_chunk = v; });
  fields.Whole("chunk.align_elements", 1, ConfigFields::kMost,
               [=](int64_t v) { options->align = Elements(v); });
  fields.Text("chunk.layout",
              [=](std::string_view v) { config->layout_file = v; });
  fields.Text("machine", [=](std::string_view v) { config->machine_file = v; });
}

void AddOptimizerFields(ConfigFields& fields, ZeroOptions* options) {
  OptimizerOptions* const optimizer = &options->optimizer;
  const auto real = [&](const char* key, double OptimizerOptions::*member) {
    fields.Number(std::string("optimizer.").append(key),
                  [=](double v) { optimizer->*member = v; });
  };
  const auto flag = [&](const char* key, bool OptimizerOptions::*member) {
    fields.Flag(std::string("optimizer.").append(key),
                [=](bool v) { optimizer->*member = v; });
  };
  fields.Object("optimizer");
  ConfigNames<OptimizerKind> kinds;
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                   OptimizerKind::kSgd, OptimizerKind::kLion}) {
    kinds.emplace_back(OptimizerName(kind), kind);
  }
  fields.OneOf("optimizer.kind", kinds, [=](OptimizerKind v) {
    *optimizer = DefaultOptimizerOptions(v);
  });
  real("beta1", &OptimizerOptions::beta1);
  real("beta2", &OptimizerOptions::beta2);
  real("eps", &OptimizerOptions::eps);
  real("weight_decay", &OptimizerOptions::weight_decay);
  real("momentum", &OptimizerOptions::momentum);
  real("dampening", &OptimizerOptions::dampening);
  flag("nesterov", &OptimizerOptions::nesterov);
  flag("stochastic_rounding", &OptimizerOptions::stochastic_rounding);
  fields.OneOf("optimizer.moment_dtype",
               ConfigNames<DType>{{DTypeName(DType::kF32), DType::kF32},
                                  {DTypeName(DType::kBF16), DType::kBF16}},
               [=](DType v) { optimizer->moment_dtype = v; });
  fields.Whole("optimizer.seed", 0, ConfigFields::kMost,
               [=](int64_t v) { optimizer->seed = static_cast<uint64_t>(v); });
  AddGroups(fields, options);
  AddLossScale(fields, &options->loss_scaling);
}

}  // namespace castor::internal
