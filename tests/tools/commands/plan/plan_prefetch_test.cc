// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Steps of real models under tight budgets, run dry with fetches ahead by depth
// and by deadlines, in the same slots: no depth is faster by more than what a
// plan does not know of other traffic makes of it.

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
#include "collectives/dry/dry_run.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"
#include "placement/planner/step_planner.h"
#include "placement/policy/fetch_forecast.h"
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

// What is compared: a step, and an engine for it.
struct Asked {
  StepTrace step;
  ChunkLayout layout;
  std::vector<ParamSpec> params;
  ZeroOptions options;
  SealOptions declared;
  int world = 1;
  Bytes communicator_buffers = {};
};

Result<Asked> OfModel(const Case& of) {
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
  flags.engine.prefetch.mode = PrefetchMode::kDeadlines;
  CASTOR_ASSIGN_OR_RETURN(PlanSubject subject, ReadPlanSubject(flags));
  subject.machine = Machine();
  CASTOR_ASSIGN_OR_RETURN(const PlanOutcome outcome, MakePlan(subject, flags));
  CASTOR_RETURN_IF_ERROR(outcome.fits);
  const EngineRequest engine = EngineRequestOf(subject, outcome);
  return Asked{outcome.step,
               outcome.layout,
               {engine.params.begin(), engine.params.end()},
               engine.options,
               engine.declared,
               engine.world,
               engine.communicator_buffers};
}

// A recorded step, of which the engine knows how long it computes in all.
Result<Asked> OfTrace(const Case& of) {
  CASTOR_ASSIGN_OR_RETURN(const TraceFile trace,
                          ReadTraceFile("tools/examples/traces/" + of.model));
  ZeroOptions options;
  options.device_budget = of.device;
  options.host_budget = of.host;
  if (of.nvme) options.nvme = {{{}, of.nvme}};
  options.clip_norm = 1;
  options.prefetch.mode = PrefetchMode::kDeadlines;
  options.machine = SlowMachine();
  options.step_compute_ns = std::accumulate(
      trace.step.compute_ns.begin(), trace.step.compute_ns.end(), int64_t{0});
  CASTOR_ASSIGN_OR_RETURN(ChunkLayout layout,
                          LayoutOfTrace(trace, std::nullopt, /*world=*/1));
  const SealOptions declared = DeclaredBy(layout, trace.step);
  std::vector<ParamSpec> params = ParamsOfTrace(layout);
  return Asked{trace.step, std::move(layout), std::move(params), options,
               declared};
}

class PlanPrefetchTest : public testing::TestWithParam<Case> {};

TEST_P(PlanPrefetchTest, NoDepthIsFasterThanDeadlines) {
  const bool recorded = GetParam().model.ends_with(".json");
  const Result<Asked> asked =
      recorded ? OfTrace(GetParam()) : OfModel(GetParam());
  ASSERT_THAT(asked, IsOk());
  const TierModel machine = recorded ? SlowMachine() : Machine();
  const std::vector<const StepTrace*> steps(3, &asked->step);
  fmt::print("{}, {}, {} ranks\n", GetParam().model,
             PlanPolicyName(GetParam().policy), GetParam().world);
  const auto step_ns = [&](SimTrainer trainer, PrefetchMode mode, int depth) {
    EngineRequest engine;
    engine.params = asked->params;
    engine.options = asked->options;
    engine.options.prefetch = {mode, depth};
    engine.declared = asked->declared;
    engine.world = asked->world;
    engine.communicator_buffers = asked->communicator_buffers;
    DryRunRequest run;
    run.params = engine.params;
    run.options = engine.options;
    run.declared = engine.declared;
    run.world = engine.world;
    run.communicator_buffers = engine.communicator_buffers;
    run.layout = &asked->layout;
    run.steps = steps;
    run.machine = machine;
    run.trainer = trainer;
    const SimulatedStep step = DryRun(run).value().steady();
    const PlanProblem problem =
        ForecastSeal(engine, asked->layout).value().memory.problem;
    const FetchForecast foreseen =
        ForeseeFetches(
            asked->step.accesses, problem,
            PlanStep(engine.options.policy, asked->step.accesses, problem)
                .value()
                .plan)
            .value();
    fmt::print(
        "  {}  {:9} {:2} {:10.3f} ms, {:3} gathers; foreseen: {:2} under way "
        "at most, {:3} late, {:8.3f} ms\n",
        trainer == SimTrainer::kStream ? "stream" : "thread",
        mode == PrefetchMode::kDepth ? "depth" : "deadlines", depth,
        static_cast<double>(step.ns()) / 1e6, step.traffic.gathers,
        foreseen.most_ahead, foreseen.late,
        static_cast<double>(foreseen.stall_ns) / 1e6);
    return static_cast<double>(step.ns());
  };
  // A recorded step computes otherwise than in proportion to its bytes, which
  // eight fetches ahead hide: a depth of 8 was faster by 2.8 %, once.
  const double room = recorded ? 1.01 : 1.005;
  const std::vector<int> depths =
      recorded ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0, 1, 2, 3, 8};
  for (const SimTrainer trainer : {SimTrainer::kThread, SimTrainer::kStream}) {
    // Seal sets aside as many slots for deadlines as for the depth.
    for (const int depth : depths) {
      EXPECT_LE(step_ns(trainer, PrefetchMode::kDeadlines, depth),
                step_ns(trainer, PrefetchMode::kDepth, depth) * room)
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
