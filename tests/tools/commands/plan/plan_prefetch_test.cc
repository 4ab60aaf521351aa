// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Steps of real models under tight budgets, simulated with fetches ahead by
// depth and by deadlines, in the same slots: none of the depths is faster by
// more than what links also carry, and what a plan does not know, makes of it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/answers/simulated_engine_of.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "placement/planner/step_planner.h"
#include "placement/policy/fetch_forecast.h"
#include "placement/simulation/simulated_engine.h"
#include "placement/simulation/simulation_result.h"
#include "placement/simulation/simulator.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"
#include "placement/trace/trace_file.h"
#include "tests/support/status_matchers.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_request.h"
#include "tools/commands/simulate/trace_layout.h"
#include "tools/models/files/castor_files.h"

namespace castor {
namespace {

struct Case {
  std::string model;  // a config, or a recorded step
  Bytes device;
  Bytes host;
  std::optional<Bytes> nvme;
  int world = 1;
  PlanPolicy policy = PlanPolicy::kAuto;
  int64_t compute_ns = 0;  // of a step
  int64_t micro_batches = 1;
};

std::ostream& operator<<(std::ostream& out, const Case& of) {
  return out << of.model << ", " << PlanPolicyName(of.policy) << ", "
             << of.world << " ranks";
}

TierModel Machine() {
  TierModel machine;
  machine.host_to_device = LinkModel{24'000'000'000, 10'000};
  machine.device_to_host = LinkModel{22'000'000'000, 10'000};
  machine.nvme_read = LinkModel{6'000'000'000, 90'000};
  machine.nvme_write = LinkModel{4'000'000'000, 30'000};
  machine.all_gather = RingModel{20'000'000'000, 8'000};
  machine.reduce_scatter = RingModel{18'000'000'000, 8'000};
  machine.memory = RateModel{180'000'000'000};
  machine.optimizer = RateModel{120'000'000'000};
  return machine;
}

// As that beside the trace.
TierModel SlowMachine() {
  TierModel machine;
  machine.host_to_device = machine.device_to_host =
      LinkModel{2'000'000'000, 15'000};
  machine.nvme_read = LinkModel{600'000'000, 80'000};
  machine.nvme_write = LinkModel{400'000'000, 20'000};
  machine.memory = RateModel{25'000'000'000};
  machine.optimizer = RateModel{20'000'000'000};
  return machine;
}

// What is compared: a step, and an engine sealed for it.
struct Sealed {
  StepTrace step;
  SimulatedEngine engine;
  PlanProblem problem;
};

Result<Sealed> SealModel(const Case& of) {
  PlanFlags flags;
  flags.model = "tools/models/configs/" + of.model;
  flags.dtype = "bf16";
  flags.world = of.world;
  flags.device_budget = of.device;
  flags.host_budget = of.host;
  flags.nvme = of.nvme;
  flags.engine.policy = of.policy;
  flags.compute = of.compute_ns;
  flags.step.micro_batches = of.micro_batches;
  flags.engine.prefetch = PrefetchMode::kDeadlines;
  CASTOR_ASSIGN_OR_RETURN(PlanSubject subject, ReadPlanSubject(flags));
  subject.machine = Machine();
  CASTOR_ASSIGN_OR_RETURN(const PlanOutcome outcome, MakePlan(subject, flags));
  CASTOR_RETURN_IF_ERROR(outcome.fits);
  return Sealed{outcome.step,
                SimulatedEngineOf(*outcome.seal, outcome.request.options),
                outcome.seal->memory.problem};
}

// A recorded step, of which the engine knows how long it computes in all.
Result<Sealed> SealTrace(const Case& of) {
  CASTOR_ASSIGN_OR_RETURN(const TraceFile trace,
                          ReadTraceFile("tools/examples/traces/" + of.model));
  EngineRequest engine;
  engine.options.device_budget = of.device;
  engine.options.host_budget = of.host;
  if (of.nvme) engine.options.nvme = {{{}, of.nvme}};
  engine.options.clip_norm = 1;
  engine.options.prefetch = PrefetchMode::kDeadlines;
  engine.options.machine = SlowMachine();
  engine.options.step_compute_ns = std::accumulate(
      trace.step.compute_ns.begin(), trace.step.compute_ns.end(), int64_t{0});
  CASTOR_ASSIGN_OR_RETURN(ChunkLayout layout,
                          LayoutOfTrace(trace, std::nullopt, /*world=*/1));
  engine.declared = DeclaredBy(layout, trace.step);
  const std::vector<ParamSpec> params = ParamsOfTrace(layout);
  engine.params = params;
  CASTOR_ASSIGN_OR_RETURN(const SealForecast seal,
                          ForecastSeal(engine, std::move(layout)));
  return Sealed{trace.step, SimulatedEngineOf(seal, engine.options),
                seal.memory.problem};
}

class PlanPrefetchTest : public testing::TestWithParam<Case> {};

TEST_P(PlanPrefetchTest, NoDepthIsFasterThanDeadlines) {
  const bool recorded = GetParam().model.ends_with(".json");
  const Result<Sealed> sealed =
      recorded ? SealTrace(GetParam()) : SealModel(GetParam());
  ASSERT_THAT(sealed, IsOk());
  const TierModel machine = recorded ? SlowMachine() : Machine();
  fmt::print("{}, {}, {} ranks\n", GetParam().model,
             PlanPolicyName(GetParam().policy), GetParam().world);
  for (const SimTrainer trainer : {SimTrainer::kThread, SimTrainer::kStream}) {
    PlanProblem problem = sealed->problem;
    const auto step_ns = [&](const std::string& name) {
      SimulatedEngine engine = sealed->engine;
      engine.problem = problem;
      const SimulatedStep step = Simulate(sealed->step, engine, machine,
                                          {.steps = 3, .trainer = trainer})
                                     .value()
                                     .steady();
      const FetchForecast foreseen =
          ForeseeFetches(sealed->step.accesses, problem,
                         PlanStep(engine.policy, sealed->step.accesses, problem)
                             .value()
                             .plan)
              .value();
      fmt::print(
          "  {}  {:9} {:10.3f} ms, {:3} gathers; foreseen: {:2} under way at "
          "most, {:3} late, {:8.3f} ms\n",
          trainer == SimTrainer::kStream ? "stream" : "thread", name,
          static_cast<double>(step.ns()) / 1e6, step.traffic.gathers,
          foreseen.most_ahead, foreseen.late,
          static_cast<double>(foreseen.stall_ns) / 1e6);
      return static_cast<double>(step.ns());
    };
    const double in_time = step_ns("deadlines");
    // A recorded step computes otherwise than in proportion to its bytes.
    const double room = recorded ? 1.01 : 1.005;
    problem.prefetch = PrefetchMode::kDepth;
    for (const int depth : {0, 1, 2, 3, 8}) {
      problem.prefetch_depth = depth;
      EXPECT_LE(in_time, step_ns(std::to_string(depth)) * room)
          << "depth " << depth;
    }
  }
}

constexpr PlanPolicy kAuto = PlanPolicy::kAuto;
constexpr PlanPolicy kPlanned = PlanPolicy::kPlanned;
constexpr int64_t kMs = 1'000'000;
constexpr std::nullopt_t kNone = std::nullopt;

INSTANTIATE_TEST_SUITE_P(
    Models, PlanPrefetchTest,
    testing::Values(
        Case{"gpt2-xl", MiB(1500), GiB(40), kNone, 1, kAuto, 400 * kMs},
        Case{"gpt2-xl", MiB(1500), GiB(40), kNone, 1, kPlanned, 150 * kMs, 2},
        Case{"gpt2-xl", MiB(1500), GiB(12), GiB(40), 1, kAuto, 800 * kMs},
        Case{"llama-3-8b", GiB(5), GiB(96), kNone, 2, kAuto, 2000 * kMs},
        Case{"llama-3-8b", GiB(5), GiB(40), GiB(96), 2, kPlanned, 4000 * kMs},
        Case{"gpt_25m.json", MiB(64), GiB(1), kNone, 1, kAuto},
        Case{"gpt_25m.json", MiB(96), GiB(1), kNone, 1, kAuto},
        Case{"gpt_25m.json", MiB(160), GiB(1), kNone, 1, kAuto},
        Case{"gpt_25m.json", MiB(96), MiB(256), GiB(1), 1, kAuto}),
    [](const testing::TestParamInfo<Case>& each) {
      return std::to_string(each.index);
    });

}  // namespace
}  // namespace castor
