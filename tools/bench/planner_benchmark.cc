// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The exact planner: its time against the number of chunks, and what its plans
// cost next to other rules'. Counters of the latter are costs of a steady step,
// as multiples of the exact plan's cost; `gap_percent` is by what that may be
// above the cheapest, `..._ahead` the percentage of fetches that begin ahead of
// their use.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/answers/foretell.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/memory/held_moments.h"
#include "collectives/sealing/layout_choice.h"
#include "placement/derive/step_model.h"
#include "placement/exact/exact_policy.h"
#include "placement/exact/interval_flow.h"
#include "placement/exact/interval_problem.h"
#include "placement/plan.h"
#include "placement/policy/next_use_policy.h"
#include "placement/policy/plan_cost.h"
#include "placement/run_event.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"
#include "tools/bench/support/cache_rules.h"

namespace castor {
namespace {

struct Scenario {
  Trace trace;
  PlanProblem problem;
};

void Use(int chunk, Trace* trace) {
  trace->push_back({AccessKind::kUse, ChunkId(chunk)});
  trace->push_back({AccessKind::kUseEnd, ChunkId(chunk)});
}

// Forward over all chunks and backward, for each micro-batch; all slots there
// are in the middle of the sweep, as many fewer before and after it as
// activations take then. `survives`: whether copies stay valid in the next
// step, as those of frozen chunks do. `cost`: of a chunk's fetch.
Scenario Sweep(int chunks, int micro_batches, int64_t most_slots,
               int64_t least_slots, bool survives,
               const std::function<double(int)>& cost) {
  Scenario made;
  std::vector<int64_t> taken;
  // Activations are few at the ends of a sweep and most at its turn.
  const auto use = [&](int chunk, int done) {
    Use(chunk, &made.trace);
    const int64_t used = (most_slots - least_slots) * done / chunks;
    taken.insert(taken.end(), 2, used);
  };
  for (int m = 0; m < micro_batches; ++m) {
    for (int c = 0; c < chunks; ++c) use(c, c + 1);
    for (int c = chunks - 1; c >= 0; --c) use(c, c);
  }
  const auto n = static_cast<size_t>(chunks);
  made.problem.param_class.assign(n, 0);
  made.problem.grad_class.assign(n, 0);
  made.problem.survives_step.assign(n, survives);
  for (int c = 0; c < chunks; ++c) made.problem.fetch_cost.push_back(cost(c));
  made.problem.slots = {most_slots};
  made.problem.prefetch.depth = 2;
  made.problem.slots_taken = {taken};
  return made;
}

double CostOf(const PlanProblem& problem, const Plan& plan) {
  const std::vector<double> costs = StepFetchCosts(problem, plan);
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

// What share of a plan's fetches begins ahead of its use, in percent.
double AheadPercent(const Plan& plan) {
  double ahead = static_cast<double>(plan.initial.size());
  double on_demand = 0;
  for (const Move& move : plan.moves) {
    if (move.kind != MoveKind::kGather) continue;
    ++(move.cause == RunCause::kPrefetch ? ahead : on_demand);
  }
  return 100 * ahead / std::max(ahead + on_demand, 1.0);
}

// The six scenarios of reference simulations: 80 chunks, forward and backward;
// a fetch costs 1 from the host and 5 from NVMe.
Scenario Scene(int64_t number, bool survives) {
  constexpr int kChunks = 80;
  const auto nvme = [](bool is) { return is ? 5.0 : 1.0; };
  const auto uniform = [](int) { return 1.0; };
  switch (number) {
    case 0:
      return Sweep(kChunks, 1, 40, 40, survives, uniform);
    case 1:
      return Sweep(kChunks, 1, 48, 24, survives, uniform);
    case 2:
      return Sweep(kChunks, 1, 48, 24, survives,
                   [&](int c) { return nvme(c >= kChunks / 2); });
    case 3:
      return Sweep(kChunks, 1, 48, 24, survives,
                   [&](int c) { return nvme(c < kChunks / 2); });
    case 4:
      return Sweep(kChunks, 4, 48, 24, survives,
                   [&](int c) { return nvme(c % 2 == 1); });
    default:
      return Sweep(kChunks, 2, 30, 16, survives,
                   [&](int c) { return nvme(c % 4 == 3); });
  }
}

constexpr const char* kScenes[] = {
    "uniform cost, 40 slots",
    "uniform cost, 48 to 24 slots",
    "NVMe: last half, 48 to 24",
    "NVMe: first half, 48 to 24",
    "NVMe: every other, 4 micro-batches",
    "NVMe: every 4th, 30 to 16, 2 micro-batches",
};

void BM_Cost(benchmark::State& state) {
  const Scenario scene = Scene(state.range(0), state.range(1) != 0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(PlanExact(scene.trace, scene.problem));
  }
  const ExactPlan exact = *PlanExact(scene.trace, scene.problem);
  const auto relative = [&](double cost) {
    return cost / exact.certificate.cost;
  };
  state.counters["lru"] = relative(
      CacheRuleCost(scene.trace, scene.problem, CacheRule::kLeastRecentlyUsed));
  state.counters["gemini"] =
      relative(CacheRuleCost(scene.trace, scene.problem, CacheRule::kGemini));
  state.counters["belady"] = relative(
      CacheRuleCost(scene.trace, scene.problem, CacheRule::kFurthestUse));
  const Plan next_use = *PlanNextUse(scene.trace, scene.problem);
  state.counters["next_use"] = relative(CostOf(scene.problem, next_use));
  state.counters["next_use_ahead"] = AheadPercent(next_use);
  state.counters["exact_ahead"] = AheadPercent(exact.plan);
  state.counters["exact_cost"] = exact.certificate.cost;
  state.counters["gap_percent"] = 100 * exact.certificate.gap();
  state.SetLabel(kScenes[state.range(0)]);
}
BENCHMARK(BM_Cost)
    ->ArgNames({"scene", "frozen"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// The same scenes with several ranks, where of a fetch all but a gather at the
// cost of 1 is for the shard: `shards` of them fit a slot that holds no chunk.
// `whole` is the exact plan that keeps gathered copies alone.
void BM_JointCost(benchmark::State& state) {
  Scenario scene = Scene(state.range(0), state.range(2) != 0);
  for (double& cost : scene.problem.fetch_cost) {
    scene.problem.shard_cost.push_back(cost);
    cost += 1;
  }
  scene.problem.shards_per_slot = {state.range(1)};
  for (auto _ : state) {
    benchmark::DoNotOptimize(PlanExact(scene.trace, scene.problem));
  }
  const PlanCertificate proof =
      PlanExact(scene.trace, scene.problem)->certificate;
  const auto relative = [&](double cost) { return cost / proof.cost; };
  PlanProblem alone = scene.problem;
  alone.shards_per_slot = {0};
  state.counters["whole"] =
      relative(PlanExact(scene.trace, alone)->certificate.cost);
  state.counters["lru"] = relative(
      CacheRuleCost(scene.trace, scene.problem, CacheRule::kLeastRecentlyUsed));
  state.counters["gemini"] =
      relative(CacheRuleCost(scene.trace, scene.problem, CacheRule::kGemini));
  state.counters["belady"] = relative(
      CacheRuleCost(scene.trace, scene.problem, CacheRule::kFurthestUse));
  state.counters["shard_slots"] =
      static_cast<double>(proof.classes[0].shard_slots);
  state.counters["gap_percent"] = 100 * proof.gap();
  state.SetLabel(kScenes[state.range(0)]);
}
BENCHMARK(BM_JointCost)
    ->ArgNames({"scene", "shards", "frozen"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5}, {2, 8}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// Four micro-batches over chunks of three tiers, in no order; slots for half of
// them, or, where they vary, for half to a quarter.
Scenario LargeSweep(benchmark::State& state) {
  const int chunks = static_cast<int>(state.range(0));
  const bool survives = state.range(1) != 0;
  const int64_t least = state.range(2) != 0 ? chunks / 4 : chunks / 2;
  std::mt19937_64 random(1);
  return Sweep(chunks, 4, chunks / 2, least, survives, [&](int) {
    constexpr double kCosts[] = {1, 2, 7};
    return kCosts[random() % 3];
  });
}

void BM_PlanExact(benchmark::State& state) {
  const Scenario scene = LargeSweep(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(PlanExact(scene.trace, scene.problem));
  }
  const PlanCertificate proof =
      PlanExact(scene.trace, scene.problem)->certificate;
  state.counters["moments"] = static_cast<double>(scene.trace.size());
  state.counters["gap_percent"] = 100 * proof.gap();
}
BENCHMARK(BM_PlanExact)
    ->ArgNames({"chunks", "frozen", "varying"})
    ->ArgsProduct({{100, 1000, 5000}, {0}, {0, 1}})
    ->ArgsProduct({{100, 1000}, {1}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

void BM_PlanNextUse(benchmark::State& state) {
  const Scenario scene = LargeSweep(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(PlanNextUse(scene.trace, scene.problem));
  }
}
BENCHMARK(BM_PlanNextUse)
    ->ArgNames({"chunks", "frozen", "varying"})
    ->ArgsProduct({{100, 1000, 5000}, {0}, {0}})
    ->Unit(benchmark::kMillisecond);

// All of what a plan of an engine is, for layers of 256 experts with a chunk
// each, as of a step: where it fits, or, without host memory, where the
// smallest raises that would fit are looked for as well. Where slots grow, the
// device holds all shards and a quarter of the gathered chunks, however many.
void BM_Foretell(benchmark::State& state) {
  constexpr int64_t kLayer = 256;
  const int64_t chunks = state.range(0) * 1000;
  std::vector<ParamSpec> params;
  std::vector<ModelBlock> blocks;
  for (int64_t c = 0; c < chunks; ++c) {
    if (c % kLayer == 0) {
      blocks.push_back({.name = fmt::format("layer.{}", c / kLayer),
                        .kind = BlockKind::kLayer,
                        .forward = {{}},
                        .backward = {{}}});
    }
    const ParamId param(static_cast<int32_t>(c));
    blocks.back().forward[0].hold.push_back(param);
    blocks.back().backward[0].hold.push_back(param);
    blocks.back().backward[0].grads.push_back(param);
    params.push_back({fmt::format("expert.{}", c), {64, 1024}, DType::kBF16});
  }
  EngineRequest request;
  request.params = params;
  request.world = 8;
  request.options.chunk_size = KiB(128);
  request.options.device_budget = MiB(128);
  if (state.range(2) != 0) {
    request.options.device_budget += MiB(160) * state.range(0);
  }
  request.options.host_budget = state.range(1) != 0 ? GiB(64) : Bytes(0);
  request.declared.held = HeldMomentsOf(params, blocks, StepShape());
  const ChunkLayout layout = *LayoutOf(params, request.options, request.world);
  const StepTrace step = *DeriveStep(layout, blocks, StepShape());
  int64_t slots = 0;
  for (auto _ : state) {
    const Result<Foretold> plan =
        Foretell({.engine = request, .layout = &layout, .steps = {&step}});
    CASTOR_CHECK(plan.ok());
    CASTOR_CHECK_EQ(plan->fits.ok(), state.range(1) != 0);
    if (plan->seal) slots = plan->seal->memory.device_classes[0].slots;
  }
  state.counters["slots"] = static_cast<double>(slots);
  state.counters["chunks"] = static_cast<double>(layout.chunks().size());
  state.counters["moments"] = static_cast<double>(step.accesses.size());
}
BENCHMARK(BM_Foretell)
    ->ArgNames({"thousand_chunks", "fits", "slots_grow"})
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 64}, {1}, {0, 1}})
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 64}, {0}, {0}})
    ->Unit(benchmark::kMillisecond);

// One flow by itself, on a trace without any order: the hardest there is. Every
// chunk is used eight times, with a tenth as many slots as chunks.
void BM_FlowAtRandom(benchmark::State& state) {
  const auto chunks = static_cast<uint64_t>(state.range(0));
  std::mt19937_64 random(2);
  IntervalProblem problem;
  std::vector<int32_t> last(chunks, -1);
  std::vector<int32_t> first(chunks, -1);
  const auto moments = static_cast<int32_t>(8 * chunks);
  constexpr int64_t kGains[] = {1, 2, 7};
  const auto gain = [&](size_t chunk) { return kGains[chunk % 3] << 24; };
  for (int32_t t = 0; t < moments; ++t) {
    const size_t chunk = random() % chunks;
    if (last[chunk] == t) {
      // Used twice in a row: nothing to keep.
    } else if (last[chunk] >= 0) {
      problem.intervals.push_back({last[chunk], t, gain(chunk)});
    } else {
      first[chunk] = t;
    }
    last[chunk] = t + 1;
    problem.capacity.push_back(static_cast<int64_t>(chunks / 10));
  }
  for (size_t c = 0; c < chunks && state.range(1) != 0; ++c) {
    if (first[c] >= 0) {
      problem.intervals.push_back({last[c], first[c], gain(c)});
    }
  }
  for (auto _ : state) benchmark::DoNotOptimize(SolveIntervals(problem));
  const IntervalSolution solution = SolveIntervals(problem);
  CASTOR_CHECK(VerifyIntervalSolution(problem, solution).ok());
  state.counters["moments"] = moments;
  state.counters["gap_percent"] =
      100.0 * static_cast<double>(solution.bound - solution.gain) /
      static_cast<double>(solution.bound);
}
BENCHMARK(BM_FlowAtRandom)
    ->ArgNames({"chunks", "cyclic"})
    ->ArgsProduct({{100, 1000, 5000}, {0}})
    ->ArgsProduct({{100, 1000}, {1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
