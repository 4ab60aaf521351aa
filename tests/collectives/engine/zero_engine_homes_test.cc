// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Homes that a user asks for: limits, rules, and what they change.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/homes/static_policy.h"
#include "placement/placement_rules.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "tests/support/test_rounds.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kParam = static_cast<size_t>(StateKind::kParam);
constexpr size_t kGrad = static_cast<size_t>(StateKind::kGrad);
constexpr size_t kMaster = static_cast<size_t>(StateKind::kMaster);
constexpr size_t kExpAvg = static_cast<size_t>(OptimizerState(0));

// Every state on every tier, in ways that no budget would choose.
std::vector<std::vector<HomeLimit>> OddLimits() {
  using enum Tier;
  return {{},
          {{"param", kDevice, 0.5},
           {"grad", kHost, Bytes(0)},
           {"exp_avg", kHost, 0.3},
           {"exp_avg_sq", kDevice, 1.0}},
          {{"all", kDevice, 1.0}},
          {{"param", kHost, Bytes(0)},
           {"grad", kDevice, KiB(20)},
           {"master", kDevice, KiB(12)},
           {"master", kHost, KiB(8)},
           {"exp_avg_sq", kHost, KiB(30)}}};
}

TEST_F(ZeroEngineTest, StaticPlacementsGiveTheSameBits) {
  int combination = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(31, 14, 2500, dtype);
    for (const auto& [world, stage] :
         {std::pair(1, 3), std::pair(2, 0), std::pair(2, 2), std::pair(3, 3)}) {
      ToyRun run;
      run.micro_batches = 2;
      ZeroOptions options = Tight(stage, MiB(2), MiB(2));
      options.clip_norm = 0.5;
      const ToyResult want = TrainToyReference(
          model, run, world, options.clip_norm, options.optimizer);
      for (const std::vector<HomeLimit>& limits : OddLimits()) {
        if (combination++ % TestStride() != 0) continue;
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " world "
                                        << world << " stage " << stage);
        options.home_limits = limits;
        const ToyResult got = TrainToy(model, run, world, options);
        ExpectEqual(got, want);
        ExpectWithinBudgets(got);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST_F(ZeroEngineTest, HomesAreAccurateToTheByteAndFollowTheLimitUp) {
  const ToyModel model = MakeToyModel(32, 30, 2000, DType::kF32);
  ToyRun run;
  run.steps = 1;
  ZeroOptions options = Tight(3, MiB(2), MiB(2));
  Bytes before;
  for (const Bytes limit : {Bytes(0), KiB(5), KiB(20), KiB(40), MiB(1)}) {
    options.home_limits = {
        {{"exp_avg", Tier::kDevice, limit}, {"grad", Tier::kHost, limit}}};
    const ToyResult got = TrainToy(model, run, 2, options);
    ASSERT_THAT(got.status, IsOk());
    const auto& bytes = got.stats.state_bytes;
    const Bytes shard = KiB(4);  // of every chunk but oversize ones
    const Bytes all = bytes[kExpAvg][0] + bytes[kExpAvg][1];
    EXPECT_LE(bytes[kExpAvg][0], limit);
    EXPECT_GE(bytes[kExpAvg][0] + shard * 2, std::min(limit, all));
    EXPECT_GE(bytes[kExpAvg][0], before);
    before = bytes[kExpAvg][0];
    EXPECT_LE(bytes[kGrad][1], limit);
    EXPECT_EQ(bytes[kGrad][0], Bytes(0));
    EXPECT_EQ(bytes[kParam][1], all) << "host, without a limit, holds all";
    EXPECT_EQ(bytes[kExpAvg][2], Bytes(0));
    // What is at home is counted where it is.
    for (Tier tier : kAllTiers) {
      const size_t t = TierIndex(tier);
      Bytes sum;
      for (const auto& of_state : bytes) sum += of_state[t];
      EXPECT_EQ(sum, got.stats.home_bytes[t]);
    }
  }
  EXPECT_GT(before, KiB(40));
}

TEST_F(OneRankEngineTest, RulesPlaceWhatTheyMatchAndSaySo) {
  ZeroOptions options = Tight(3, KiB(160), KiB(400));
  options.home_rules = {
      {.glob = "p[01]", .state = "exp_avg", .tier = Tier::kNvme},
      {.glob = "p[0-3]", .tier = Tier::kHost},
      {.glob = "p1?",
       .decide = [](const ParamSpec&, StateKind state) -> std::optional<Tier> {
         if (state != StateKind::kGrad) return std::nullopt;
         return Tier::kDevice;
       }}};
  Open(options, 14);  // chunks of two
  ASSERT_THAT(engine_->Seal({}), IsOk());
  EXPECT_EQ(engine_->ExplainHome(ChunkId(0), OptimizerState(0)),
            "chunk 0: exp_avg on nvme by rule 0 (\"p[01]\": exp_avg on nvme), "
            "which matches \"p0\"");
  EXPECT_THAT(engine_->ExplainHome(ChunkId(1), StateKind::kParam),
              HasSubstr("param on host by rule 1"));
  EXPECT_THAT(engine_->ExplainHome(ChunkId(5), StateKind::kGrad),
              AllOf(HasSubstr("grad on device by rule 2"),
                    HasSubstr("as a callback says"), HasSubstr("\"p10\"")));
  EXPECT_THAT(engine_->ExplainHome(ChunkId(3), StateKind::kParam),
              HasSubstr("by the budgets"));
  // Two chunks of four states each, two of gradients alone.
  EXPECT_EQ(engine_->PlacedByRules().size(), 10u);
  EXPECT_EQ(engine_->stats().state_bytes[kExpAvg][2], KiB(8));
  EXPECT_THAT(engine_->BeginMicroBatch(true), IsOk());
  Backward({0, 1, 2, 3, 10, 11});
  EXPECT_THAT(engine_->Step(0.1), IsOk());
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(ZeroEngineTest, RulesGiveTheSameBits) {
  const ToyModel model = MakeToyModel(33, 16, 2000, DType::kBF16);
  ToyRun run;
  run.micro_batches = 2;
  ZeroOptions options = Tight(3, KiB(128), KiB(256));
  const ToyResult want =
      TrainToyReference(model, run, 2, options.clip_norm, options.optimizer);
  options.home_rules = {
      {.glob = "p[0-7]", .state = "master", .tier = Tier::kDevice},
      {.least = KiB(2), .state = "param", .tier = Tier::kNvme},
      {.glob = "p1*", .state = "grad", .tier = Tier::kNvme}};
  // The first rule that matches holds, and a chunk has one answer.
  options.chunk_size = KiB(4);
  const ToyResult got = TrainToy(model, run, 2, options);
  ExpectEqual(got, want);
  ExpectWithinBudgets(got);
  EXPECT_GT(got.stats.state_bytes[kMaster][0], Bytes(0));
  EXPECT_GT(got.stats.state_bytes[kParam][2], Bytes(0));
  EXPECT_GT(got.stats.state_bytes[kGrad][2], Bytes(0));
}

TEST_F(ZeroEngineTest, RefusesWhatCannotBeBeforeTheFirstStep) {
  const ToyModel model = MakeToyModel(34, 12, 2000, DType::kF32);
  ToyRun run;
  run.after_step = [](ZeroEngine&, int) { ADD_FAILURE() << "a step"; };
  const auto refusal = [&](const ZeroOptions& options) {
    return TrainToy(model, run, 2, options).status;
  };
  ZeroOptions options = Roomy(3);
  options.home_limits = {{{"grad", Tier::kHost, KiB(4)}}};
  EXPECT_THAT(refusal(options),
              StatusIs(ErrorCode::kInfeasible,
                       AllOf(HasSubstr("the limits of grad leave"),
                             HasSubstr("there is no NVMe tier"))));
  options.home_limits->clear();
  options.host_budget = KiB(32);
  EXPECT_THAT(refusal(options),
              StatusIs(ErrorCode::kInfeasible,
                       AllOf(HasSubstr("host is to be home to"),
                             HasSubstr("raise the host budget by"))));
  options.home_limits = {{{"grad", Tier::kDevice, 1.5}}};
  EXPECT_THAT(refusal(options), StatusIs(ErrorCode::kInvalidArgument));
  options.home_limits = {{{"exp_avgs", Tier::kDevice, 0.5}}};
  EXPECT_THAT(refusal(options), StatusIs(ErrorCode::kInvalidArgument,
                                         HasSubstr("did you mean exp_avg?")));

  options = Roomy(3);
  options.home_rules = {{.glob = "p_1", .tier = Tier::kHost}};
  EXPECT_THAT(refusal(options),
              StatusIs(ErrorCode::kInvalidArgument,
                       AllOf(HasSubstr("rule 0 (\"p_1\": all on host) matches "
                                       "none of the 12 parameters"),
                             HasSubstr("is \"p1\" meant?"))));
  options.home_rules = {{.glob = "p1", .state = "momentum_buffer"}};
  EXPECT_THAT(refusal(options),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("is for state \"momentum_buffer\", and the "
                                 "optimizer keeps exp_avg, exp_avg_sq")));
  options.home_rules = {{.glob = "p1", .tier = Tier::kNvme}};
  EXPECT_THAT(refusal(options), StatusIs(ErrorCode::kInfeasible,
                                         HasSubstr("there is no NVMe tier")));
}

TEST_F(ZeroEngineTest, AMachineChangesNoBitAndIsTheSameOnAllRanks) {
  const ToyModel model = MakeToyModel(36, 30, 2000, DType::kF32);
  ToyRun run;
  TierModel machine;
  machine.host_to_device = LinkModel{1'000'000'000, 10'000};
  machine.nvme_read = LinkModel{200'000'000, 80'000};
  machine.nvme_write = LinkModel{100'000'000, 20'000};
  std::vector<ToyPart> parts(2,
                             ToyPart{model, run, Tight(3, KiB(96), KiB(200))});
  const ToyResult want = TrainToyParts(parts)[0];
  for (const bool whole : {false, true}) {
    std::vector<std::string> said;
    Log log([&](LogLevel, std::string_view line) {
      if (line.find("machine") != line.npos) said.emplace_back(line);
    });
    if (whole) machine.all_gather = RingModel{3'000'000'000, 5'000};
    for (ToyPart& part : parts) {
      part.options.machine = machine;
      part.options.policy = PlanPolicy::kPlanned;
      part.options.log = &log;
    }
    ExpectEqual(TrainToyParts(parts)[0], want);
    if (whole) {
      EXPECT_THAT(said, testing::IsEmpty());
    } else {
      EXPECT_THAT(said, testing::ElementsAre(HasSubstr(
                            "the machine says nothing of all_gather")));
    }
  }
  parts[1].options.machine->nvme_write->latency_ns += 1;
  EXPECT_THAT(TrainToyParts(parts)[0].status,
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("machine")));
  parts[0].options.machine->nvme_write->bytes_per_second = 0;
  EXPECT_THAT(TrainToyParts(parts)[0].status,
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("nvme_write")));
}

TEST_F(ZeroEngineTest, RanksThatAskForDifferentHomesAreTold) {
  const ToyModel model = MakeToyModel(35, 12, 2000, DType::kF32);
  std::vector<ToyPart> parts(2, ToyPart{model, ToyRun(), Roomy(3)});
  parts[1].options.home_limits.emplace();
  EXPECT_THAT(TrainToyParts(parts)[0].status,
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("options: home_limits.")));
  parts[1].options = Roomy(3);
  for (size_t rank = 0; rank < 2; ++rank) {
    parts[rank].options.home_rules = {
        {.decide = [rank](const ParamSpec&, StateKind) -> std::optional<Tier> {
          return rank == 0 ? Tier::kHost : Tier::kDevice;
        }}};
  }
  EXPECT_THAT(TrainToyParts(parts)[0].status,
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("answered differently on different ranks")));
}

}  // namespace
}  // namespace castor
