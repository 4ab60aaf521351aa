// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/bench/support/drawn_plans.h"

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <vector>

#include "collectives/zero_options.h"
#include "placement/homes/home_limits.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/state_kind.h"
#include "tools/examples/gpt/engine_params.h"

namespace castor {
namespace {

constexpr Bytes kMostBudget = MiB(64);

}  // namespace

DrawnPlan DrawPlan(std::mt19937_64& random) {
  const auto below = [&](int n) {
    return static_cast<int>(random() % static_cast<uint64_t>(n));
  };
  const auto one_of = [&]<typename T>(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<int>(all.size()))];
  };
  DrawnPlan plan;
  plan.model = {.vocab = 256,
                .context = one_of({8, 16}),
                .layers = 1 + below(3),
                .heads = 2,
                .embd = one_of({32, 64})};
  plan.dtype = one_of({DType::kF32, DType::kBF16, DType::kF16});
  PlanFlags& flags = plan.flags;
  flags.world = 1 + below(4);
  flags.step.micro_batches = 1 + below(3);
  flags.nvme = one_of({std::optional<Bytes>(), std::optional(MiB(64))});
  flags.host_budget = one_of({std::optional<Bytes>(), std::optional(KiB(256)),
                              std::optional(MiB(1)), std::optional(MiB(64))});
  ZeroOptions& engine = flags.engine;
  engine.stage = below(4);
  if (flags.world == 4) engine.shard_group = one_of({0, 2});
  engine.optimizer_span =
      one_of({OptimizerSpan::kGroup, OptimizerSpan::kWorld});
  engine.chunk_size =
      one_of({KiB(4), KiB(16), KiB(32), KiB(64), KiB(96), KiB(256)});
  engine.clip_norm = below(2);
  engine.grad_mode =
      one_of({GradMode::kSeparate, GradMode::kFp32, GradMode::kReuse});
  engine.accumulation =
      one_of({AccumulationOrder::kEach, AccumulationOrder::kLast});
  engine.policy = one_of({PlanPolicy::kAuto, PlanPolicy::kPlanned});
  engine.prefetch.depth = below(4);
  if (below(5) == 0) {
    PlacementRule rule;
    rule.glob = one_of({"*.mlp.*", "wte.*", "h.0.*"});
    rule.tier = Tier::kHost;
    rule.state = kParamName;
    engine.home_rules.push_back(rule);
  }
  if (below(5) == 0) {
    const StateNames names = StateNamesOf(engine.optimizer);
    engine.home_limits = {{{std::string(names.of(OptimizerState(0))),
                            Tier::kHost, one_of({KiB(0), KiB(64)})}}};
  }
  return plan;
}

Result<PlanSubject> SubjectOf(const DrawnPlan& plan,
                              const std::string& folder) {
  PlanFlags flags = plan.flags;
  flags.model = folder + "/model.tsv";
  flags.read.order = ParamOrder::kFile;
  std::ofstream(flags.model)
      << gpt::ModelList(plan.model, plan.dtype, flags.engine.grad_mode);
  return ReadPlanSubject(flags);
}

PlanSubject WithoutStep(PlanSubject subject) {
  subject.model.step.uses.clear();
  return subject;
}

Result<std::optional<Bytes>> LeastDeviceBudget(const PlanSubject& subject,
                                               const PlanFlags& flags) {
  const auto fits = [&](Bytes budget) -> Result<bool> {
    PlanFlags own = flags;
    own.device_budget = budget;
    CASTOR_ASSIGN_OR_RETURN(const PlanOutcome outcome, MakePlan(subject, own));
    return outcome.fits.ok();
  };
  CASTOR_ASSIGN_OR_RETURN(const bool at_all, fits(kMostBudget));
  if (!at_all) return std::optional<Bytes>();
  Bytes too_little = Bytes(-1);
  Bytes enough = kMostBudget;
  while (enough - too_little > Bytes(1)) {
    const Bytes middle = too_little + (enough - too_little) / 2;
    CASTOR_ASSIGN_OR_RETURN(const bool fit, fits(middle));
    (fit ? enough : too_little) = middle;
  }
  return std::optional(enough);
}

}  // namespace castor
