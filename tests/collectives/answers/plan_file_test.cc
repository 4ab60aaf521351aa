// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/plan_file.h"

#include <cstddef>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/run_event.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

PlanFile MadePlan() {
  PlanFile plan;
  plan.model = "made \"up\"";
  plan.tensors = 2;
  plan.elements = Elements(300);
  plan.world = 4;
  plan.engine.stage = 2;
  plan.engine.shard_group = 2;
  plan.engine.optimizer_span = OptimizerSpan::kWorld;
  plan.engine.align = Elements(128);
  plan.engine.min_chunk = KiB(32);
  plan.engine.max_chunk = MiB(3);
  plan.engine.device_budget = MiB(7);
  plan.engine.host_budget = MiB(9);
  plan.nvme = GiB(1);
  plan.engine.prefetch.depth = 5;
  plan.engine.prefetch.mode = PrefetchMode::kDeadlines;
  plan.engine.step_compute_ns = 800'000'000;
  plan.engine.policy = PlanPolicy::kPlanned;
  plan.engine.grad_mode = GradMode::kReuse;
  plan.engine.home_limits = {
      {{"exp_avg", Tier::kHost, MiB(2)}, {"param", Tier::kDevice, 0.1}}};
  PlacementRule rule;
  rule.glob = "*.experts.*";
  rule.tier = Tier::kNvme;
  rule.dtype = DType::kBF16;
  rule.least = KiB(4);
  rule.most = KiB(64);
  rule.state = "master";
  PlacementRule plain;
  plain.tier = Tier::kHost;
  plan.engine.home_rules = {rule, plain};
  return plan;
}

// `text` with `from` replaced by `to`.
std::string With(std::string text, const std::string& from,
                 const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

TEST(PlanFileTest, ComesBackAsItWas) {
  PlanFile plan = MadePlan();
  const std::string text = WritePlan(plan);
  const Result<PlanFile> read = ParsePlan(text);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(WritePlan(*read), text);
  EXPECT_EQ(read->model, plan.model);
  EXPECT_EQ(read->engine.home_limits, plan.engine.home_limits);
  EXPECT_EQ(read->engine.home_rules[0].most, KiB(64));
  EXPECT_EQ(read->nvme, GiB(1));
  EXPECT_EQ(read->engine.shard_group, 2);
  EXPECT_EQ(read->engine.prefetch.mode, PrefetchMode::kDeadlines);
  EXPECT_EQ(read->engine.step_compute_ns, 800'000'000);
  EXPECT_EQ(read->engine.optimizer_span, OptimizerSpan::kWorld);

  EXPECT_EQ(read->engine.grad_mode, GradMode::kReuse);
  EXPECT_EQ(read->engine.accumulation, AccumulationOrder::kEach);

  EXPECT_EQ(ParsePlan(With(WritePlan(plan), "\"step_compute_ns\": 800000000",
                           "\"step_compute_ns\": 0"))
                ->engine.step_compute_ns,
            0);  // unknown, as if it were not there

  plan.engine.chunk_size = KiB(96);
  plan.engine.grad_mode = GradMode::kFp32;
  plan.engine.accumulation = AccumulationOrder::kLast;
  plan.nvme.reset();
  plan.engine.home_limits.reset();
  plan.engine.home_rules.clear();
  const Result<PlanFile> sized = ParsePlan(WritePlan(plan));
  ASSERT_THAT(sized, IsOk());
  EXPECT_EQ(sized->engine.chunk_size, KiB(96));
  EXPECT_EQ(sized->engine.grad_mode, GradMode::kFp32);
  EXPECT_EQ(sized->engine.accumulation, AccumulationOrder::kLast);
  EXPECT_EQ(sized->nvme, std::nullopt);
  EXPECT_FALSE(sized->engine.home_limits.has_value());

  plan.engine.chunk_size.reset();
  plan.files.layout = "a b/layout.json";
  EXPECT_EQ(ParsePlan(WritePlan(plan))->files.layout, plan.files.layout);
}

TEST(PlanFileTest, NamesWhatIsWrong) {
  const std::string good = WritePlan(MadePlan());
  const struct {
    std::string text;
    const char* says;
  } cases[] = {
      {"", "line 1"},
      {"[]", "where an object belongs"},
      {With(good, "castor.plan/1", "castor.plan/2"), "castor.plan/1"},
      {With(good, "\"stage\": 2", "\"stag\": 2"), "stage"},
      {With(good, "\"stage\": 2", "\"stage\": 4"), "from 0 to 3"},
      {With(good, "\"stage\": 2,", ""), "\"stage\""},
      {With(good, "\"shard_group\": 2", "\"shard_group\": -2"), "is -2, which"},
      {With(good, "\"optimizer_span\": \"world\"",
            "\"optimizer_span\": \"word\""),
       "did you mean world"},
      {With(good, "\"world\": 4", "\"world\": 4, \"world\": 4"), "world"},
      {With(good, "\"world\": 4", "\"world\": -4"), "is -4, which"},
      {With(good, "128", "100"), "multiple of 64"},
      {With(good, "\"planned\"", "\"plannd\""), "did you mean planned"},
      {With(good, "\"reuse\"", "\"reused\""), "did you mean reuse"},
      {With(good, "\"grad_mode\": \"reuse\",", ""), "grad_mode"},
      {With(good, "\"each\"", "\"all\""), "accumulation_order"},
      {With(good, "\"min_bytes\": 32768", "\"bytes\": 5"), "more than one"},
      {With(good, "\"min_bytes\": 32768,", ""), "min_bytes"},
      {With(good, "32768", "99999999"), "above"},
      {With(good, "\"exp_avg\"", "\"exp avg\""), "no name of a state"},
      {With(good, "\"host\",\n      \"bytes\"", "\"hot\",\n      \"bytes\""),
       "host"},
      {With(good, "0.1", "1.5"), "from 0 to 1"},
      {With(good, "\"BF16\"", "\"BF17\""), "type"},
      {With(good, "\"tensors\": 2", "\"tensors\": {}"), "an object"},
  };
  for (const auto& [text, says] : cases) {
    EXPECT_THAT(ParsePlan(text).status(),
                StatusIs(ErrorCode::kMalformed, HasSubstr(says)))
        << text;
  }
  EXPECT_THAT(ParsePlan(std::string(kMaxPlanBytes + 1, ' ')).status(),
              StatusIs(ErrorCode::kMalformed, HasSubstr("at most")));
}

TEST(PlanFileTest, IsForOneModelAndOneWorld) {
  const PlanFile plan = MadePlan();
  const std::vector<ParamSpec> params = {{"a", {100}, DType::kF32, true},
                                         {"b", {2, 100}, DType::kF32, true}};
  EXPECT_THAT(CheckPlanFits(plan, params, 4, true), IsOk());
  EXPECT_THAT(CheckPlanFits(plan, params, 2, false),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("--world 2")));
  EXPECT_THAT(CheckPlanFits(plan, {params.data(), 1}, 4, false),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("2 tensors of 300 elements")));
}

TEST(PlanFileTest, IsForOnePackingAndForWhatItHasRoomFor) {
  PlanFile plan = MadePlan();
  const std::vector<ParamSpec> params = {{"a", {100}, DType::kF32, true},
                                         {"b", {2, 100}, DType::kF32, true}};
  plan.packing = PackingDigest(params);
  EXPECT_THAT(CheckPlanFits(plan, params, 4, true), IsOk());
  std::vector<ParamSpec> other = {params[1], params[0]};
  for (int change = 0; change < 5; ++change) {
    EXPECT_THAT(CheckPlanFits(plan, other, 4, true),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("another type, in another order")));
    other = params;
    if (change == 0) other[0].dtype = DType::kBF16;
    if (change == 1) other[1].trainable = false;
    if (change == 2) other[1].whole = true;
    if (change == 3) other[0].states = 1;
  }

  ZeroOptions options;
  options.nvme = {{"drive", std::nullopt}};
  plan.moments = MomentsText(options.optimizer);
  EXPECT_THAT(CheckPlanFits(plan, params, 4, true),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("castor plan --processes")));
  EXPECT_THAT(CheckPlanFits(plan, params, 4, false), IsOk());
  plan.processes = true;
  EXPECT_THAT(CheckPlanFits(plan, params, 4, true), IsOk());

  EXPECT_THAT(ApplyPlan(plan, &options), IsOk());
  options.clip_norm = 1;
  EXPECT_THAT(ApplyPlan(plan, &options),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("no room for the gradient's norm")));
  plan.norm = true;
  EXPECT_THAT(ApplyPlan(plan, &options), IsOk());
  options.optimizer.moment_dtype = DType::kBF16;
  EXPECT_THAT(ApplyPlan(plan, &options),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("2 of BF16")));

  const Result<PlanFile> read = ParsePlan(WritePlan(plan));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->packing, plan.packing);
  EXPECT_EQ(read->moments, plan.moments);
  EXPECT_TRUE(read->norm);
  EXPECT_TRUE(read->processes);
}

TEST(PlanFileTest, SetsWhatAnEngineIsMadeWith) {
  const PlanFile plan = MadePlan();
  ZeroOptions options;
  EXPECT_THAT(ApplyPlan(plan, &options),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("NVMe")));
  options.nvme = {{"drive", std::nullopt}};
  ASSERT_THAT(ApplyPlan(plan, &options), IsOk());
  EXPECT_EQ(options.stage, 2);
  EXPECT_EQ(options.shard_group, 2);
  EXPECT_EQ(options.optimizer_span, OptimizerSpan::kWorld);
  EXPECT_EQ(options.device_budget, MiB(7));
  EXPECT_EQ(options.host_budget, MiB(9));
  EXPECT_EQ(options.nvme[0].size, GiB(1));
  EXPECT_EQ(options.max_chunk, MiB(3));
  EXPECT_EQ(options.policy, PlanPolicy::kPlanned);
  EXPECT_EQ(options.grad_mode, GradMode::kReuse);
  EXPECT_EQ(options.accumulation, AccumulationOrder::kEach);
  PlanFile without = plan;
  without.nvme.reset();
  EXPECT_THAT(ApplyPlan(without, &options),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("leave")));
}

}  // namespace
}  // namespace castor
