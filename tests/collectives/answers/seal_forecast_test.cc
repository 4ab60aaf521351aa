// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What is foretold without an engine, held to what an engine then does: bytes
// of every tier, homes, and what a step moves over each link.

#include "collectives/answers/seal_forecast.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/answers/foretell.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/memory/gathered_need.h"
#include "collectives/memory/held_moments.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/memory/tier_pool.h"
#include "placement/derive/step_model.h"
#include "placement/homes/static_policy.h"
#include "placement/placement_rules.h"
#include "placement/policy/next_use_policy.h"
#include "placement/run_event.h"
#include "placement/step_traffic.h"
#include "placement/tier_model.h"
#include "tests/collectives/answers/naive_traffic.h"
#include "tests/collectives/answers/seal_forecast_cases.h"
#include "tests/collectives/answers/seal_forecast_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tests/support/toys/toy_model.h"

namespace castor {
namespace {

using testing::HasSubstr;

class ForetoldTest : public SealForecastTest {
 protected:
  ZeroOptions OptionsOf(const ForecastCase& c) {
    ZeroOptions options = Roomy(c.stage);
    options.chunk_size.reset();
    if (c.chunk > Bytes(0)) {
      options.chunk_size = c.chunk;
    } else {
      options.min_chunk = KiB(2);
    }
    options.device_budget = c.device;
    options.host_budget = c.host;
    if (c.nvme) options.nvme = {{nvme_.path(), std::nullopt}};
    options.prefetch.depth = c.depth;
    options.policy = c.policy;
    options.clip_norm = c.clip;
    options.grad_mode = c.grads;
    options.accumulation = c.order;
    options.shard_group = c.group;
    options.optimizer_span = c.span;
    if (!c.asked) return options;
    options.home_limits = {
        {{"param", Tier::kDevice, 0.25}, {"exp_avg", Tier::kHost, 0.5}}};
    PlacementRule rule;
    rule.glob = "p3";
    rule.state = "grad";
    rule.tier = Tier::kNvme;
    options.home_rules = {rule};
    options.machine.emplace();
    options.machine->host_to_device = LinkModel{10 * kMinBytesPerSecond, 10};
    options.machine->all_gather = RingModel{5 * kMinBytesPerSecond, 20};
    options.machine->nvme_read = LinkModel{kMinBytesPerSecond, 30};
    return options;
  }

  static void ExpectForetold(const SealForecast& seal,
                             const SimulationResult& run,
                             const Outcome& outcome) {
    const StepTraffic& traffic = run.steady().traffic;
    EXPECT_EQ(outcome.closed.chunks, std::ssize(seal.layout.chunks()));
    int64_t slots = 0;
    for (const int64_t count : seal.memory.problem.slots) slots += count;
    EXPECT_EQ(outcome.closed.gathered_slots, slots);
    for (const Tier tier : kAllTiers) {
      SCOPED_TRACE(TierName(tier));
      const auto t = TierIndex(tier);
      EXPECT_EQ(seal.memory.home_bytes[t], outcome.closed.home_bytes[t]);
      EXPECT_EQ(run.peak[t], outcome.closed.tiers[t].peak);
      EXPECT_GE(seal.table.total(tier), run.peak[t]);
      for (const Tier to : kAllTiers) {
        const auto u = TierIndex(to);
        const Bytes moved[3] = {outcome.steady[0].moved[t][u],
                                outcome.steady[1].moved[t][u],
                                outcome.steady[2].moved[t][u]};
        EXPECT_EQ(traffic.on(tier, to).bytes, OfAStep(moved))
            << "to " << TierName(to);
      }
    }
    const Bytes sent[3] = {outcome.steady[0].wire_sent,
                           outcome.steady[1].wire_sent,
                           outcome.steady[2].wire_sent};
    EXPECT_EQ(traffic.wire_sent(), OfAStep(sent));
    EXPECT_EQ(traffic.gathers,
              outcome.steady[1].gathers - outcome.steady[0].gathers);
    EXPECT_EQ(traffic.fetches,
              outcome.steady[1].fetches - outcome.steady[0].fetches);
    EXPECT_EQ(outcome.closed.divergences, 0);
  }

  // What a trace tells to be held takes no more slots than what was declared,
  // and no fewer than the trace holds.
  static void ExpectSameNeed(const SealForecast& seal,
                             const SealOptions& declared, const Trace& trace,
                             const StepShape& shape) {
    const PlanProblem& problem = seal.memory.problem;
    std::vector<int32_t> params = problem.param_class;
    for (size_t c = 0; c < params.size(); ++c) {
      if (params[c] == kNoSlotClass) params[c] = problem.grad_class[c];
      // Neither takes a slot: any class will do.
      if (params[c] == kNoSlotClass) params[c] = 0;
    }
    std::vector<int32_t> grads = problem.grad_class;
    for (size_t c = 0; c < grads.size(); ++c) {
      if (grads[c] == kNoSlotClass) grads[c] = params[c];
    }
    const auto need = [&](const std::vector<HeldTogether>& held) {
      return internal::GatheredNeed(
          seal.layout, params, held, std::vector<bool>(params.size(), false),
          grads, shape.whole_grads, shape.grads_in_place);
    };
    const std::vector<int64_t> of_trace =
        need(HeldMomentsOf(seal.layout, trace));
    const std::vector<int64_t> of_blocks = need(declared.held);
    const std::vector<int64_t> pinned = PinnedPeaks(trace, problem);
    for (size_t c = 0; c < pinned.size(); ++c) {
      EXPECT_LE(of_trace[c], of_blocks[c]);
      EXPECT_LE(pinned[c], of_trace[c]);
    }
  }

  void Check(const ForecastCase& c) {
    SCOPED_TRACE(c.name);
    ToyModel model = MakeToyModel(17, 24, 1500, c.dtype);
    for (size_t p = 1; c.frozen > 0 && p < model.params.size(); ++p) {
      model.params[p].trainable = p % static_cast<size_t>(c.frozen) != 0;
    }
    const std::vector<ModelBlock> blocks =
        MakeBlocks(model, c.grads == GradMode::kReuse);
    StepShape shape;
    shape.grads_in_place = c.grads == GradMode::kReuse;
    shape.micro_batches = c.micro_batches;
    shape.recompute = c.recompute;
    shape.whole_grads = c.order == AccumulationOrder::kLast;
    SealOptions declared;
    if (c.declares) declared.held = HeldMomentsOf(model.params, blocks, shape);
    declared.largest_lease = c.lease;
    ZeroOptions options = OptionsOf(c);
    StartRecorder recorder;
    options.recorder = &recorder;

    const std::vector<Outcome> outcomes =
        Train(model, blocks, shape, declared, options, c.world);
    for (int rank = 0; rank < c.world; ++rank) {
      SCOPED_TRACE(testing::Message() << "rank " << rank);
      const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
      ASSERT_THAT(outcome.status, IsOk());
      const EngineRequest request = {.params = model.params,
                                     .options = options,
                                     .world = c.world,
                                     .rank = rank,
                                     .communicator_buffers = Bytes(0),
                                     .declared = declared};
      const Result<SealForecast> seal = ForecastSeal(request);
      ASSERT_THAT(seal, IsOk());
      const Result<StepTrace> step = DeriveStep(seal->layout, blocks, shape);
      ASSERT_THAT(step, IsOk());
      EXPECT_EQ(step->accesses, outcome.trace);
      if (c.declares) {
        ExpectSameNeed(*seal, declared, outcome.trace, shape);
      }
      const Result<Foretold> told = Foretell({.engine = request,
                                              .layout = &seal->layout,
                                              .steps = std::vector(3, &*step)});
      ASSERT_THAT(told, IsOk());
      ASSERT_THAT(told->fits, IsOk());
      ExpectForetold(*seal, *told->run, outcome);
      const StepTraffic& traffic = told->run->steady().traffic;
      EXPECT_EQ(traffic,
                NaiveTrafficOf(*seal, options, *step, told->run->by_chunk));
      if (c.keeps_shards) {
        EXPECT_GT(told->forecast->shard_slots, 0);
        EXPECT_LT(traffic.fetches, traffic.gathers);
      }
      for (size_t from = 0; from < 3; ++from) {
        for (size_t to = 0; to < 3; ++to) {
          seen_.moved[from][to].bytes += traffic.moved[from][to].bytes;
        }
      }
      for (size_t chunk = 0; chunk < seal->memory.states.size(); ++chunk) {
        for (const StateKind state : {StateKind::kParam, StateKind::kMaster,
                                      OptimizerState(0), OptimizerState(1)}) {
          const StatePlace& place =
              seal->memory.states[chunk][static_cast<size_t>(state)];
          if (place.bytes == Bytes(0)) continue;
          EXPECT_EQ(place.home,
                    recorder.HomeOf({rank, static_cast<int32_t>(chunk), state}))
              << "chunk " << chunk << " " << StateNames().of(state);
        }
      }
    }
  }

  StepTraffic seen_;  // of all cases
};

TEST_F(ForetoldTest, IsWhatAnEngineTakesAndMoves) {
  size_t number = 0;
  for (const ForecastCase& c : kForecastCases) {
    // Every other one, where a sanitizer watches.
    if (TestStride() == 1 || number++ % 2 == 0) Check(c);
  }
  EXPECT_GT(seen_.on(Tier::kHost, Tier::kDevice).bytes, KiB(512));
  EXPECT_GT(seen_.on(Tier::kNvme, Tier::kHost).bytes, KiB(512));
  EXPECT_GT(seen_.on(Tier::kHost, Tier::kNvme).bytes, KiB(512));
  EXPECT_GT(seen_.on(Tier::kDevice, Tier::kHost).bytes, KiB(512));
}

TEST_F(SealForecastTest, EveryByteOfAPoolIsOfAClass) {
  std::mt19937_64 random(TestSeed(5));
  const auto one_of = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(
                       random() % static_cast<uint64_t>(most - least + 1));
  };
  int fitted = 0;
  for (int round = 0; round < 60; ++round) {
    const ToyModel model =
        MakeToyModel(random(), static_cast<int>(one_of(4, 30)), 3000,
                     one_of(0, 1) == 0 ? DType::kF32 : DType::kBF16);
    ZeroOptions options = Tight(static_cast<int>(one_of(0, 3)),
                                KiB(one_of(16, 512)), KiB(one_of(0, 512)));
    options.prefetch.depth = static_cast<int>(one_of(0, 4));
    options.clip_norm = static_cast<double>(one_of(0, 1));
    EngineRequest request;
    request.params = model.params;
    request.options = options;
    request.world = static_cast<int>(one_of(1, 5));
    if (request.world == 4) {
      request.options.shard_group = static_cast<int>(one_of(0, 1)) * 2;
    }
    request.rank = static_cast<int>(one_of(0, request.world - 1));
    request.communicator_buffers = KiB(one_of(0, 4));
    request.declared.largest_lease = Bytes(one_of(0, 9000));
    const Result<SealForecast> seal = ForecastSeal(request);
    if (!seal.ok()) {
      EXPECT_THAT(seal.status(), StatusIs(ErrorCode::kInfeasible,
                                          HasSubstr("raise the device")));
      continue;
    }
    ++fitted;
    const std::pair<Tier, const std::vector<SlotClass>*> pools[] = {
        {Tier::kDevice, &seal->memory.device_classes},
        {Tier::kHost, &seal->memory.host_classes},
        {Tier::kNvme, &seal->memory.nvme_classes}};
    for (const auto& [tier, classes] : pools) {
      Bytes slab;
      for (const SlotClass& slots : *classes) {
        slab += slots.slot_bytes * slots.slots;
      }
      if (tier == Tier::kDevice) slab += request.communicator_buffers;
      EXPECT_EQ(seal->table.total(tier), slab) << TierName(tier);
    }
    EXPECT_LE(seal->table.total(Tier::kDevice), options.device_budget);
    EXPECT_LE(seal->table.total(Tier::kHost), options.host_budget);
  }
  EXPECT_GT(fitted, 10);
}

TEST_F(SealForecastTest, RefusesWhatAnEngineRefuses) {
  const ToyModel model = MakeToyModel(9, 20, 2000, DType::kF32);
  EngineRequest request;
  request.params = model.params;
  request.options = Roomy(4);
  EXPECT_THAT(ForecastSeal(request).status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("stage 4")));
  request.options = Roomy(3);
  request.options.device_budget = KiB(15);
  EXPECT_THAT(ForecastSeal(request).status(),
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("raise the device budget by")));
  request.options = Roomy(3);
  const std::vector<ParamSpec> halves = {{"w", {64}, DType::kF64, true}};
  request.params = halves;
  EXPECT_THAT(
      ForecastSeal(request).status(),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("trains F32, BF16")));
}

}  // namespace
}  // namespace castor
