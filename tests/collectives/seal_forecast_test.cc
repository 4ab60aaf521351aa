// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What is foretold without an engine, held to what an engine then does: bytes
// of every tier, homes, and what a step moves over each link.

#include "collectives/seal_forecast.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/held_moments.h"
#include "collectives/in_process_communicator.h"
#include "collectives/internal/gathered_need.h"
#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/tier_pool.h"
#include "placement/next_use_policy.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"
#include "placement/static_policy.h"
#include "placement/step_model.h"
#include "placement/tier_model.h"
#include "placement/trace_file.h"
#include "tests/support/block_trainer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"
#include "tests/support/toy_model.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 4;

// Three parameters to a layer, used one by one; the first parameter is used
// again at the end, as a tied embedding is, whose gradient from there is not
// looked at by the block at the beginning where it is written `in_place`.
std::vector<ModelBlock> MakeBlocks(const ToyModel& model, bool in_place) {
  const auto id = [](size_t p) { return ParamId(static_cast<int32_t>(p)); };
  std::vector<ModelBlock> blocks;
  for (size_t p = 0; p < model.params.size(); p += 3) {
    ModelBlock block;
    block.kind = BlockKind::kLayer;
    const size_t end = std::min(p + 3, model.params.size());
    for (size_t i = p; i < end; ++i) {
      block.forward.push_back({{id(i)}, {}});
      if (!model.params[end - 1 - (i - p)].trainable) continue;
      const ParamId back = id(end - 1 - (i - p));
      block.backward.push_back({{back}, {back}});
      if (in_place && back == id(0)) block.backward.back().hold.clear();
    }
    blocks.push_back(std::move(block));
  }
  ModelBlock head;
  head.kind = BlockKind::kHead;
  head.forward = {{{id(0)}, {}}};
  head.backward = {{{id(0)}, {id(0)}}};
  blocks.push_back(std::move(head));
  return blocks;
}

// Where initial values went, by rank, chunk and state.
class StartRecorder final : public RunRecorder {
 public:
  using Key = std::tuple<int32_t, int32_t, StateKind>;

  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent& event) override {
    if (event.kind != RunEventKind::kTransfer ||
        event.cause != RunCause::kStart) {
      return;
    }
    const std::lock_guard lock(mutex_);
    homes_[{event.rank, event.chunk, event.state}] = event.to;
  }
  // What did not cross a link stayed in host memory.
  Tier HomeOf(const Key& key) const {
    const auto found = homes_.find(key);
    return found == homes_.end() ? Tier::kHost : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, Tier> homes_;
};

struct Case {
  std::string name;
  int world = 1;
  int stage = 3;
  DType dtype = DType::kF32;
  Bytes chunk = {};  // 0: searched
  Bytes device = {};
  Bytes host = {};
  bool nvme = true;
  int depth = 3;
  PlanPolicy policy = PlanPolicy::kAuto;
  int64_t micro_batches = 1;
  bool recompute = false;
  double clip = 0;
  bool declares = true;
  Bytes lease = {};
  int frozen = 0;      // every so many parameters one is; 0: none
  bool asked = false;  // homes are asked for, and links were measured
  GradMode grads = GradMode::kSeparate;
  AccumulationOrder order = AccumulationOrder::kEach;
  int group = 0;  // ranks that share shards; 0: all
  OptimizerSpan span = OptimizerSpan::kGroup;
  bool keeps_shards = false;
};

// One parameter to a chunk, each used once forward and once backward, and
// always from the first to the last: where a class has one slot, the copy that
// is in it is never the one that is wanted next.
struct OneByOne {
  explicit OneByOne(int params, DType dtype) {
    ModelBlock& block = blocks.emplace_back();
    block.kind = BlockKind::kLayer;
    for (int p = 0; p < params; ++p) {
      // 768 is a multiple of the quantum of 2 and of 3 ranks; of 4 it is 512.
      model.params.push_back({"p" + std::to_string(p), {1536}, dtype, true});
      block.forward.push_back({{ParamId(p)}, {}});
      block.backward.push_back({{ParamId(p)}, {ParamId(p)}});
    }
  }

  ToyModel model;
  std::vector<ModelBlock> blocks;
};

class SealForecastTest : public ZeroEngineTest {
 protected:
  ZeroOptions OptionsOf(const Case& c) {
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
    options.prefetch_depth = c.depth;
    options.policy = c.policy;
    options.clip_norm = c.clip;
    options.grad_mode = c.grads;
    options.accumulation = c.order;
    options.shard_group = c.group;
    options.optimizer_span = c.span;
    if (!c.asked) return options;
    StaticLimits& limits = options.home_limits.emplace();
    limits[static_cast<size_t>(StateKind::kParam)].device = 0.25;
    limits[static_cast<size_t>(StateKind::kExpAvg)].host = 0.5;
    PlacementRule rule;
    rule.glob = "p3";
    rule.state = StateKind::kGrad;
    rule.tier = Tier::kNvme;
    options.home_rules = {rule};
    options.machine.emplace();
    options.machine->host_to_device = LinkModel{1'000'000, 10};
    options.machine->all_gather = RingModel{500'000, 20};
    options.machine->nvme_read = LinkModel{100'000, 30};
    return options;
  }

  struct Outcome {
    Status status;
    // After the last but one step, after the last, and after nothing more;
    // before each, a digest has waited for what goes on in the background.
    EngineStats steady[3];
    EngineStats closed;
    Trace trace;
  };

  static Result<EngineStats> Settled(ZeroEngine& engine) {
    CASTOR_RETURN_IF_ERROR(engine.WeightDigest().status());
    return engine.stats();
  }
  // Of the last step alone, without the digest behind it.
  static Bytes OfAStep(const Bytes (&after)[3]) {
    return after[1] - after[0] - (after[2] - after[1]);
  }

  // What one rank saw of the training.
  Outcome TrainRank(const ToyModel& model,
                    const std::vector<ModelBlock>& blocks,
                    const StepShape& shape, const SealOptions& declared,
                    const ZeroOptions& options, Communicator* communicator) {
    Outcome outcome;
    const auto train = [&]() -> Status {
      CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<ZeroEngine> engine,
                              ZeroEngine::Create(options, communicator));
      for (const ParamSpec& spec : model.params) {
        CASTOR_RETURN_IF_ERROR(engine->Register(spec, {}).status());
      }
      CASTOR_RETURN_IF_ERROR(engine->Seal(declared));
      BlockTrainer trainer(blocks, shape, engine.get());
      for (int step = 0; step < kSteps; ++step) {
        CASTOR_RETURN_IF_ERROR(trainer.Step());
        if (step == kSteps - 2) {
          CASTOR_ASSIGN_OR_RETURN(outcome.steady[0], Settled(*engine));
        }
      }
      CASTOR_ASSIGN_OR_RETURN(outcome.steady[1], Settled(*engine));
      CASTOR_ASSIGN_OR_RETURN(outcome.steady[2], Settled(*engine));
      outcome.trace = engine->RecordedTrace().step.accesses;
      CASTOR_RETURN_IF_ERROR(engine->Close());
      outcome.closed = engine->stats();
      return OkStatus();
    };
    outcome.status = train();
    if (!outcome.status.ok()) communicator->Abort(outcome.status);
    return outcome;
  }

  std::vector<Outcome> Train(const ToyModel& model,
                             const std::vector<ModelBlock>& blocks,
                             const StepShape& shape,
                             const SealOptions& declared,
                             const ZeroOptions& options, int world) {
    InProcessOptions in_process;
    in_process.world = world;
    in_process.executor = &pool_;
    std::vector<std::unique_ptr<Communicator>> ranks =
        MakeInProcessWorld(in_process);
    std::vector<Outcome> outcomes(static_cast<size_t>(world));
    std::vector<std::thread> threads;
    for (size_t r = 0; r < outcomes.size(); ++r) {
      threads.emplace_back([&, r] {
        outcomes[r] =
            TrainRank(model, blocks, shape, declared, options, ranks[r].get());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  static void ExpectForetold(const SealForecast& seal,
                             const StepForecast& forecast,
                             const Outcome& outcome) {
    EXPECT_EQ(outcome.closed.chunks, std::ssize(seal.layout.chunks()));
    int64_t slots = 0;
    for (const int64_t count : seal.memory.problem.slots) slots += count;
    EXPECT_EQ(outcome.closed.gathered_slots, slots);
    for (const Tier tier : kAllTiers) {
      SCOPED_TRACE(TierName(tier));
      const auto t = TierIndex(tier);
      EXPECT_EQ(seal.memory.home_bytes[t], outcome.closed.home_bytes[t]);
      EXPECT_EQ(forecast.peak[t], outcome.closed.tiers[t].peak);
      EXPECT_GE(seal.table.total(tier), forecast.peak[t]);
      for (const Tier to : kAllTiers) {
        const auto u = TierIndex(to);
        const Bytes moved[3] = {outcome.steady[0].moved[t][u],
                                outcome.steady[1].moved[t][u],
                                outcome.steady[2].moved[t][u]};
        EXPECT_EQ(forecast.traffic.on(tier, to).bytes, OfAStep(moved))
            << "to " << TierName(to);
      }
    }
    const Bytes sent[3] = {outcome.steady[0].wire_sent,
                           outcome.steady[1].wire_sent,
                           outcome.steady[2].wire_sent};
    EXPECT_EQ(forecast.traffic.wire_sent(), OfAStep(sent));
    EXPECT_EQ(forecast.traffic.gathers,
              outcome.steady[1].gathers - outcome.steady[0].gathers);
    EXPECT_EQ(forecast.traffic.fetches,
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

  // What the first rank of a training peaks at.
  Bytes PeakOf(const EngineRequest& request, const OneByOne& made, Tier tier) {
    const std::vector<Outcome> outcomes =
        Train(made.model, made.blocks, StepShape(), request.declared,
              request.options, request.world);
    EXPECT_THAT(outcomes[0].status, IsOk());
    EXPECT_EQ(outcomes[0].closed.engine_copies, Bytes(0));
    return outcomes[0].closed.tiers[TierIndex(tier)].peak;
  }

  void Check(const Case& c) {
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
      const Result<SealForecast> seal =
          ForecastSeal({.params = model.params,
                        .options = options,
                        .world = c.world,
                        .rank = rank,
                        .communicator_buffers = Bytes(0),
                        .declared = declared});
      ASSERT_THAT(seal, IsOk());
      const Result<StepTrace> step = DeriveStep(seal->layout, blocks, shape);
      ASSERT_THAT(step, IsOk());
      EXPECT_EQ(step->accesses, outcome.trace);
      if (c.declares) {
        ExpectSameNeed(*seal, declared, outcome.trace, shape);
      }
      const Result<StepForecast> forecast =
          ForecastStep(*seal, options, step->accesses);
      ASSERT_THAT(forecast, IsOk());
      ExpectForetold(*seal, *forecast, outcome);
      if (c.keeps_shards) {
        EXPECT_GT(forecast->shard_slots, 0);
        EXPECT_LT(forecast->traffic.fetches, forecast->traffic.gathers);
      }
      for (size_t from = 0; from < 3; ++from) {
        for (size_t to = 0; to < 3; ++to) {
          seen_.moved[from][to].bytes +=
              forecast->traffic.moved[from][to].bytes;
        }
      }
      for (size_t chunk = 0; chunk < seal->memory.states.size(); ++chunk) {
        for (const StateKind state :
             {StateKind::kParam, StateKind::kMaster, StateKind::kExpAvg,
              StateKind::kExpAvgSq}) {
          const StatePlace& place =
              seal->memory.states[chunk][static_cast<size_t>(state)];
          if (place.bytes == Bytes(0)) continue;
          EXPECT_EQ(place.home,
                    recorder.HomeOf({rank, static_cast<int32_t>(chunk), state}))
              << "chunk " << chunk << " " << StateKindName(state);
        }
      }
    }
  }

  StepTraffic seen_;  // of all cases
};

TEST_F(SealForecastTest, IsWhatAnEngineTakesAndMoves) {
  const Case cases[] = {
      {.name = "all on the device", .device = MiB(4), .host = MiB(1)},
      {.name = "one rank, host",
       .chunk = KiB(8),
       .device = KiB(64),
       .host = MiB(4),
       .nvme = false},
      {.name = "one rank, three tiers, clipped",
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(72),
       .host = KiB(96),
       .micro_batches = 2,
       .clip = 1},
      {.name = "two ranks, three tiers, recomputed",
       .world = 2,
       .device = KiB(64),
       .host = KiB(120),
       .recompute = true,
       .clip = 1},
      {.name = "four ranks, planned",
       .world = 4,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(64),
       .host = KiB(60),
       .policy = PlanPolicy::kPlanned,
       .micro_batches = 3},
      {.name = "two ranks, frozen parameters, a lease",
       .world = 2,
       .chunk = KiB(6),
       .device = KiB(96),
       .host = KiB(160),
       .policy = PlanPolicy::kPlanned,
       .lease = Bytes(5000),
       .frozen = 3},
      {.name = "on demand, undeclared",
       .world = 2,
       .chunk = KiB(6),
       .device = KiB(128),
       .host = KiB(100),
       .depth = 0,
       .declares = false},
      {.name = "stage 0",
       .world = 2,
       .stage = 0,
       .chunk = KiB(8),
       .device = KiB(160),
       .host = KiB(240),
       .micro_batches = 2,
       .clip = 2},
      {.name = "stage 1",
       .world = 2,
       .stage = 1,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(72),
       .host = KiB(96)},
      {.name = "stage 2, frozen",
       .world = 3,
       .stage = 2,
       .chunk = KiB(12),
       .device = KiB(128),
       .host = KiB(64),
       .micro_batches = 2,
       .frozen = 4},
      {.name = "homes by limits and a rule, weighed by time",
       .world = 2,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(120),
       .host = KiB(240),
       .policy = PlanPolicy::kPlanned,
       .micro_batches = 2,
       .asked = true},
      {.name = "three ranks, shards kept, two micro-batches",
       .world = 3,
       .chunk = KiB(6),
       .device = KiB(72),
       .host = KiB(200),
       .policy = PlanPolicy::kPlanned,
       .micro_batches = 2,
       .keeps_shards = true},
      {.name = "four ranks, shards kept, frozen and on three tiers",
       .world = 4,
       .chunk = KiB(6),
       .device = KiB(66),
       .host = KiB(40),
       .depth = 1,
       .policy = PlanPolicy::kPlanned,
       .micro_batches = 2,
       .clip = 1,
       .frozen = 3,
       .keeps_shards = true},
      {.name = "gradients in fp32",
       .world = 2,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(96),
       .host = KiB(96),
       .micro_batches = 2,
       .clip = 1,
       .grads = GradMode::kFp32},
      {.name = "whole gradients in fp32, reduced once",
       .world = 2,
       .stage = 1,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(300),
       .host = KiB(64),
       .micro_batches = 3,
       .frozen = 4,
       .grads = GradMode::kFp32,
       .order = AccumulationOrder::kLast},
      {.name = "four ranks in groups of two",
       .world = 4,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(64),
       .host = KiB(60),
       .policy = PlanPolicy::kPlanned,
       .micro_batches = 2,
       .clip = 1,
       .group = 2},
      {.name = "four ranks in groups of two, states over all",
       .world = 4,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(64),
       .host = KiB(40),
       .micro_batches = 2,
       .clip = 1,
       .group = 2,
       .span = OptimizerSpan::kWorld},
      {.name = "six ranks in groups of three, on the device",
       .world = 6,
       .chunk = KiB(12),
       .device = MiB(4),
       .host = MiB(1),
       .frozen = 3,
       .group = 3,
       .span = OptimizerSpan::kWorld},
      {.name = "stage 2 in groups of two",
       .world = 4,
       .stage = 2,
       .chunk = KiB(8),
       .device = KiB(96),
       .host = KiB(64),
       .micro_batches = 2,
       .group = 2},
      {.name = "stage 1 in groups of two, states over all",
       .world = 4,
       .stage = 1,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(96),
       .host = KiB(64),
       .group = 2,
       .span = OptimizerSpan::kWorld},
      {.name = "gradients over parameters",
       .world = 2,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(64),
       .host = KiB(160),
       .clip = 1,
       .grads = GradMode::kReuse},
      {.name = "gradients over parameters, undeclared, planned",
       .world = 2,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(72),
       .host = KiB(96),
       .policy = PlanPolicy::kPlanned,
       .declares = false,
       .frozen = 4,
       .grads = GradMode::kReuse},
      {.name = "gradients over homes",
       .world = 2,
       .stage = 1,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = KiB(160),
       .host = KiB(240),
       .grads = GradMode::kReuse},
      {.name = "gradients over homes, all on the device",
       .world = 2,
       .stage = 0,
       .dtype = DType::kBF16,
       .chunk = KiB(8),
       .device = MiB(4),
       .host = MiB(1),
       .grads = GradMode::kReuse},
  };
  for (const Case& c : cases) Check(c);
  EXPECT_GT(seen_.on(Tier::kHost, Tier::kDevice).bytes, KiB(512));
  EXPECT_GT(seen_.on(Tier::kNvme, Tier::kHost).bytes, KiB(512));
  EXPECT_GT(seen_.on(Tier::kHost, Tier::kNvme).bytes, KiB(512));
  EXPECT_GT(seen_.on(Tier::kDevice, Tier::kHost).bytes, KiB(512));
}

// The engine's own copies are none (sharding.md, defect B2: list collectives
// copy in and out), also around the collectives of what is used in place.
TEST_F(SealForecastTest, WireElementsAreTwoOrThreeTimesTheModels) {
  constexpr int kParams = 6;
  for (const int world : {2, 3, 4}) {
    for (const int stage : {1, 2, 3}) {
      for (const GradMode mode : {GradMode::kFp32, GradMode::kReuse}) {
        SCOPED_TRACE(testing::Message() << "world " << world << " stage "
                                        << stage << " " << GradModeName(mode));
        const OneByOne made(kParams, DType::kBF16);
        StepShape shape;
        shape.grads_in_place = mode == GradMode::kReuse;
        SealOptions declared;
        declared.held = HeldMomentsOf(made.model.params, made.blocks, shape);
        ZeroOptions options = Roomy(stage);
        options.chunk_size = Bytes(3072);
        options.grad_mode = mode;
        options.prefetch_depth = 0;
        // All homes in host memory, and one slot for parameters.
        options.home_limits.emplace();
        for (StateLimits& limits : *options.home_limits)
          limits.device = Bytes(0);
        options.device_budget =
            mode == GradMode::kReuse ? Bytes(3072) : Bytes(3 * 3072);
        const std::vector<Outcome> outcomes =
            Train(made.model, made.blocks, shape, declared, options, world);
        for (int rank = 0; rank < world; ++rank) {
          const Outcome& outcome = outcomes[static_cast<size_t>(rank)];
          ASSERT_THAT(outcome.status, IsOk());
          const Result<SealForecast> seal =
              ForecastSeal({.params = made.model.params,
                            .options = options,
                            .world = world,
                            .rank = rank,
                            .communicator_buffers = Bytes(0),
                            .declared = declared});
          ASSERT_THAT(seal, IsOk());
          const Result<StepForecast> forecast =
              ForecastStep(*seal, options, outcome.trace);
          ASSERT_THAT(forecast, IsOk());
          const Elements model = seal->layout.allocated(0);
          ASSERT_EQ(model, Elements(kParams * 1536));
          const Bytes sent[3] = {outcome.steady[0].wire_sent,
                                 outcome.steady[1].wire_sent,
                                 outcome.steady[2].wire_sent};
          const Bytes chunks = OfAStep(sent) - forecast->traffic.agreement;
          const int64_t share = model.count() / world * (world - 1);
          const int64_t grad_bytes = mode == GradMode::kFp32 ? 4 : 2;
          // Gathered once, to refresh or forward, and once more backward in
          // stage 3; reduced once.
          EXPECT_EQ(chunks.count(),
                    share * (2 * (stage == 3 ? 2 : 1) + grad_bytes));
          if (mode == GradMode::kReuse) {
            EXPECT_EQ(chunks.count() / 2, (stage == 3 ? 3 : 2) * share);
          }
          EXPECT_EQ(outcome.closed.engine_copies, Bytes(0));
        }
      }
    }
  }
}

// Guards against B7: a stage that shards more and peaks higher.
TEST_F(SealForecastTest, WithTheFewestSlotsPeaksFollowTheFormulaDownTheStages) {
  constexpr int kParams = 12;
  const Bytes chunk(3072);
  for (const int world : {2, 3}) {
    Bytes before_device = GiB(1);
    Bytes before_host = GiB(1);
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE(testing::Message()
                   << "world " << world << " stage " << stage);
      const OneByOne made(kParams, DType::kBF16);
      EngineRequest request;
      request.params = made.model.params;
      request.options = Roomy(stage);
      request.options.chunk_size = chunk;
      request.options.prefetch_depth = 0;
      request.world = world;
      request.declared.held =
          HeldMomentsOf(made.model.params, made.blocks, StepShape());
      const int64_t model = kParams * 1536;
      const bool params_whole = stage < 3;
      const int64_t others = stage < 1 ? 1 : world;
      const int64_t states =
          model * 2 / (params_whole ? 1 : world) + model * (2 + 12) / others;

      // All on the device: what is used in place needs a slot for its gradient,
      // what is gathered one more for itself.
      request.options.host_budget = Bytes(0);
      for (request.options.device_budget = Bytes(0);
           !ForecastSeal(request).ok();
           request.options.device_budget += Bytes(512)) {
        ASSERT_LT(request.options.device_budget, MiB(4));
      }
      const Bytes device = PeakOf(request, made, Tier::kDevice);
      const Bytes formula = Bytes(states) + chunk * (params_whole ? 1 : 2);
      EXPECT_LE(device, formula + chunk);
      EXPECT_GE(device + chunk, formula);
      EXPECT_LE(device, before_device);
      before_device = device;

      // All in host memory, beside the staging slots that updates take.
      request.options.home_limits.emplace();
      for (StateLimits& limits : *request.options.home_limits) {
        limits.device = Bytes(0);
      }
      request.options.host_budget = MiB(8);
      for (request.options.device_budget = Bytes(0);
           !ForecastSeal(request).ok();
           request.options.device_budget += Bytes(512)) {
        ASSERT_LT(request.options.device_budget, MiB(4));
      }
      EXPECT_EQ(PeakOf(request, made, Tier::kDevice), chunk * 2);
      const Bytes host = PeakOf(request, made, Tier::kHost);
      const Result<SealForecast> seal = ForecastSeal(request);
      const Bytes staging =
          seal->memory
              .host_classes[static_cast<size_t>(seal->memory.staging_class)]
              .slot_bytes *
          seal->memory.staging_slots;
      // Slots of host memory are whole pages.
      Bytes homes;
      for (const auto& of_chunk : seal->memory.states) {
        for (const StatePlace& place : of_chunk) {
          homes += RoundUp(place.bytes, KiB(4));
        }
      }
      EXPECT_EQ(host, homes + staging);
      EXPECT_GE(homes, Bytes(states));
      EXPECT_LE(host, before_host);
      before_host = host;
    }
  }
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
    options.prefetch_depth = static_cast<int>(one_of(0, 4));
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
