// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor plan` on Llama-3-70B in bf16 over 64 ranks, its parameters already
// listed: one plan, everything that the command answers where it fits, and the
// changes that it looks for where it does not.

#include <benchmark/benchmark.h>

#include <optional>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "placement/exact_policy.h"
#include "placement/model_blocks.h"
#include "placement/tier_model.h"
#include "tools/bench/model_shapes.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_request.h"
#include "tools/commands/plan/plan_subject.h"
#include "tools/commands/plan/plan_variants.h"

namespace castor {
namespace {

PlanSubject Llama70B() {
  PlanSubject subject;
  subject.argument = "llama-3-70b";
  subject.model.name = subject.argument;
  subject.model.params = LlamaParams(Llama3With70B(), DType::kBF16);
  subject.shape = {.width = 8192,
                   .heads = 64,
                   .vocab = 128256,
                   .query_width = 8192,
                   .key_width = 1024,
                   .mlp_width = 28672,
                   .gated_mlp = true};
  subject.by_block =
      FindModelBlocks(subject.model.params, {}, HoldUnit::kBlock);
  subject.by_module =
      FindModelBlocks(subject.model.params, {}, HoldUnit::kModule);
  return subject;
}

PlanFlags Flags(Bytes device, Bytes host) {
  PlanFlags flags;
  flags.model = "llama-3-70b";
  flags.world = 64;
  flags.device_budget = device;
  flags.host_budget = host;
  flags.seq = 8192;
  flags.recompute = true;
  flags.micro_batches = 4;
  return flags;
}

PlanOutcome Plan(const PlanSubject& subject, const PlanFlags& flags) {
  const Result<PlanRequest> request = CheckPlanFlags(flags, subject);
  CASTOR_CHECK(request.ok());
  Result<PlanOutcome> outcome = MakePlan(subject, *request);
  CASTOR_CHECK(outcome.ok());
  return *std::move(outcome);
}

void BM_OnePlan(benchmark::State& state) {
  const PlanSubject subject = Llama70B();
  PlanFlags flags = Flags(GiB(32), GiB(16));
  if (state.range(0) != 0) flags.engine.policy = PlanPolicy::kPlanned;
  std::optional<PlanOutcome> outcome;
  for (auto _ : state) outcome = Plan(subject, flags);
  CASTOR_CHECK(outcome->fits.ok());
  state.counters["chunks"] =
      static_cast<double>(outcome->layout.chunks().size());
  state.counters["accesses"] =
      static_cast<double>(outcome->step.accesses.size());
}
BENCHMARK(BM_OnePlan)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

// All links that the step passes, so that it is simulated.
TierModel Machine() {
  TierModel machine;
  machine.host_to_device = LinkModel{25'000'000'000, 15'000};
  machine.device_to_host = LinkModel{25'000'000'000, 15'000};
  machine.memory = RateModel{250'000'000'000};
  machine.optimizer = RateModel{200'000'000'000};
  machine.all_gather = RingModel{200'000'000'000, 3'400};
  machine.reduce_scatter = RingModel{200'000'000'000, 3'400};
  return machine;
}

void BM_AllOfAFit(benchmark::State& state) {
  PlanSubject subject = Llama70B();
  PlanFlags flags = Flags(GiB(32), GiB(16));
  const bool timed = state.range(0) != 0;
  if (timed) {
    subject.machine = Machine();
    flags.compute = 60'000'000'000;
  }
  for (auto _ : state) {
    const PlanOutcome outcome = Plan(subject, flags);
    CASTOR_CHECK(outcome.simulated.has_value() == timed);
    CASTOR_CHECK(
        PlanExact(outcome.step.accesses, outcome.forecast->problem).ok());
    CASTOR_CHECK(Alternatives(subject, flags, outcome).ok());
    CASTOR_CHECK(OneMoreGiB(subject, flags, outcome).ok());
  }
}
BENCHMARK(BM_AllOfAFit)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void BM_AllOfARefusal(benchmark::State& state) {
  const PlanSubject subject = Llama70B();
  const PlanFlags flags = Flags(GiB(12), GiB(2));
  for (auto _ : state) {
    const PlanOutcome outcome = Plan(subject, flags);
    CASTOR_CHECK(!outcome.fits.ok());
    CASTOR_CHECK(ChangesThatFit(subject, flags, outcome).ok());
  }
}
BENCHMARK(BM_AllOfARefusal)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
