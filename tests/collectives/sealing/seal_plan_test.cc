// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sealing/seal_plan.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "collectives/sealing/layout_choice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/homes/static_policy.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<ParamSpec> Params() {
  std::vector<ParamSpec> params;
  for (const char* name : {"a", "b", "c", "d"}) {
    params.push_back({name, {1024}, DType::kF32, true});
  }
  return params;
}

ZeroOptions Options() {
  ZeroOptions options;
  options.chunk_size = KiB(4);
  options.device_budget = KiB(64);
  options.host_budget = MiB(1);
  return options;
}

TEST(SealPlanTest, RefusesOptionsThatHaveNoMeaning) {
  EXPECT_THAT(CheckOptions(Options(), 2), IsOk());
  const std::vector<std::pair<std::string, void (*)(ZeroOptions&)>> mistakes = {
      {"stage 4 does not exist", [](ZeroOptions& o) { o.stage = 4; }},
      {"cannot be clipped to -1", [](ZeroOptions& o) { o.clip_norm = -1; }},
      {"cannot be clipped to nan",
       [](ZeroOptions& o) {
         o.clip_norm = std::numeric_limits<double>::quiet_NaN();
       }},
      {"prefetch depth -1 is negative",
       [](ZeroOptions& o) { o.prefetch.depth = -1; }},
      {"a step cannot compute for -5 ns",
       [](ZeroOptions& o) { o.step_compute_ns = -5; }},
      {"a layout and a chunk size exclude each other", [](ZeroOptions& o) {
         o.layout = std::make_shared<const LayoutFile>(
             LayoutFile{{}, ChunkLayout(1, Elements(64), {}, {}, {})});
       }}};
  for (const auto& [message, make] : mistakes) {
    ZeroOptions options = Options();
    make(options);
    EXPECT_THAT(CheckOptions(options, 2),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(message)));
  }
  EXPECT_THAT(
      CheckTrains({"w", {4}, DType::kF64, true}, GradMode::kSeparate),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("parameter w is F64")));
}

TEST(SealPlanTest, BudgetsAreWithoutTheCommunicatorsBuffers) {
  ZeroOptions options = Options();
  const SealBudgets budgets = BudgetsOf(options, KiB(8));
  EXPECT_EQ(budgets.device, KiB(56));
  EXPECT_EQ(budgets.host, MiB(1));
  EXPECT_FALSE(budgets.nvme);
  options.nvme = {{"x", MiB(2)}, {"y", MiB(3)}};
  EXPECT_EQ(BudgetsOf(options, Bytes(0)).nvme, MiB(5));
  options.nvme = {{"x", MiB(2)}, {"y", {}}};
  EXPECT_EQ(BudgetsOf(options, Bytes(0)).nvme, kUnlimited);
}

TEST(SealPlanTest, TheNormIsCountedToClipAndToFindOverflows) {
  ZeroOptions options = Options();
  EXPECT_FALSE(CountsNorm(options));
  options.loss_scaling.kind = LossScalingKind::kDynamic;
  EXPECT_TRUE(CountsNorm(options));
  options.loss_scaling.kind = LossScalingKind::kNone;
  options.clip_norm = 1;
  EXPECT_TRUE(CountsNorm(options));
}

TEST(SealPlanTest, RefusesMomentsThatHoldWhatIsNoParameter) {
  const ZeroOptions options = Options();
  const ChunkLayout layout = *LayoutOf(Params(), options, 1);
  SealOptions declared;
  declared.held = {{{ParamId(1)}, {ParamId(4)}}};
  EXPECT_THAT(MemoryOf(layout, ShardingOf(options, 1, 0), options,
                       BudgetsOf(options, Bytes(0)), {}, declared),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("parameter 4, which is not registered")));
}

TEST(SealPlanTest, SaysWhyAStateIsWhereItIs) {
  const std::vector<ParamSpec> params = Params();
  ZeroOptions options = Options();
  const ChunkLayout layout = *LayoutOf(params, options, 1);
  const auto why = [&](ChunkId chunk, StateKind state) {
    const std::vector<ChunkBindings> bindings =
        BindingsOf(options, params, layout).value();
    const Result<MemoryPlan> memory =
        MemoryOf(layout, ShardingOf(options, 1, 0), options,
                 BudgetsOf(options, Bytes(0)), bindings, {});
    EXPECT_THAT(memory, IsOk());
    return WhyHome(*memory, options, bindings, params, chunk, state);
  };
  EXPECT_THAT(why(ChunkId(1), OptimizerState(0)),
              AllOf(HasSubstr("chunk 1: exp_avg on "),
                    HasSubstr("by the budgets, which put ")));
  options.home_rules = {{.glob = "b", .state = "exp_avg", .tier = Tier::kHost}};
  EXPECT_THAT(why(ChunkId(1), OptimizerState(0)),
              AllOf(HasSubstr("by rule 0"), HasSubstr("matches \"b\"")));
  EXPECT_THAT(why(ChunkId(2), OptimizerState(0)), HasSubstr("by the budgets"));
  options.home_limits.emplace();
  EXPECT_THAT(why(ChunkId(2), StateKind::kParam), HasSubstr("on host"));
}

TEST(SealPlanTest, RaisesAreWhatIsMissing) {
  const std::vector<ParamSpec> params = Params();
  ZeroOptions options = Options();
  const ChunkLayout layout = *LayoutOf(params, options, 1);
  const Sharding sharding = ShardingOf(options, 1, 0);
  const BudgetRaises none =
      RaisesOf(layout, sharding, options, BudgetsOf(options, Bytes(0)), {}, {});
  EXPECT_FALSE(none.device || none.host || none.nvme);
  options.host_budget = KiB(4);
  const BudgetRaises raises =
      RaisesOf(layout, sharding, options, BudgetsOf(options, Bytes(0)), {}, {});
  ASSERT_TRUE(raises.host);
  options.host_budget += *raises.host;
  EXPECT_THAT(
      MemoryOf(layout, sharding, options, BudgetsOf(options, Bytes(0)), {}, {}),
      IsOk());
}

}  // namespace
}  // namespace castor
