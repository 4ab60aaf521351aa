// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/report_data.h"

#include <string>

#include "chunk/base/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/report/made_run.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::Not;

MadeRun TwoSteps() {
  MadeRun run(1);
  run.At(0, 1).Step(0, 100).TierBytes(Tier::kDevice, 10, 60);
  run.Gather(2, 10, 30, 5'000).Stall(RunCause::kPrefetch, 2, 15, 30);
  run.At(0, 2).Step(100, 180).Gather(2, 110, 120, 5'000);
  return run;
}

TEST(ReportDataTest, JsonHoldsTheNumbers) {
  const MadeRun run = TwoSteps();
  const JsonValue report =
      ReportJson("run.rec", ComputeRunStatistics(run.record, {}), OkStatus());
  EXPECT_EQ(report["schema"], "castor.report/1");
  EXPECT_EQ(report["record"]["file"], "run.rec");
  EXPECT_EQ(report["record"]["complete"], true);
  EXPECT_FALSE(report["record"].contains("reason"));
  EXPECT_EQ(report["record"]["stage"], 3);
  EXPECT_EQ(report["complete_steps"], 2);
  EXPECT_EQ(report["step_ns"]["median"], 90'000);
  EXPECT_EQ(report["steps"][1]["time_ns"], 80'000);
  EXPECT_EQ(report["steps"][1]["link_bytes"]["all-gather"], 5'000);
  EXPECT_EQ(report["ranks"][0]["stalled_ns"], 15'000);
  EXPECT_EQ(report["tiers"][0]["tier"], "device");
  EXPECT_EQ(report["tiers"][0]["peak_bytes"], 60);
  EXPECT_EQ(report["tiers"][0]["budget_bytes"], 100);
  EXPECT_EQ(report["tiers"][0]["over_step_bytes"].size(), 32u);
  EXPECT_EQ(report["links"][0]["link"], "all-gather");
  EXPECT_EQ(report["links"][0]["moved_bytes"], 10'000);
  EXPECT_EQ(report["links"][0]["moved_bytes_by_cause"]["prefetch"], 10'000);
  EXPECT_EQ(report["stalls"][0]["cause"], "prefetch");
  EXPECT_EQ(report["stalls"][0]["time_ns"], 15'000);
  EXPECT_EQ(report["stalls"][0]["worst_chunks"][0]["parameters"], "layer.2");
  EXPECT_EQ(report["stalls"][0]["busiest_link"], "all-gather");
}

TEST(ReportDataTest, HoldsTheNumbersOfPinnedArenas) {
  MadeRun run = TwoSteps();
  run.Arena("staging", 1 << 20);
  const RunStatistics statistics = ComputeRunStatistics(run.record, {});
  const JsonValue report = ReportJson("r", statistics, OkStatus());
  const JsonValue& arenas = report["pinned_arenas"];
  ASSERT_EQ(arenas.size(), 1u);
  EXPECT_EQ(arenas[0]["name"], "staging");
  EXPECT_EQ(arenas[0]["allocator"], "jemalloc 5.3.0");
  EXPECT_EQ(arenas[0]["locked"], true);
  EXPECT_EQ(arenas[0]["budget_bytes"], 1 << 20);
  EXPECT_EQ(arenas[0]["peak_bytes"], 1 << 19);
  EXPECT_EQ(arenas[0]["live_bytes"], 1 << 18);
  EXPECT_EQ(arenas[0]["refused"], 1);
  EXPECT_THAT(ReportPlain("r", statistics, OkStatus()),
              HasSubstr("arena\t\"staging\"\t0\t\"jemalloc 5.3.0\"\t524288\t"
                        "1048576\t262144\t263168\t525312\t0\t40\t1\n"));
}

TEST(ReportDataTest, HoldsThePricesOfSlots) {
  MadeRun run = TwoSteps();
  RunStatistics statistics = ComputeRunStatistics(run.record, {});
  EXPECT_TRUE(ReportJson("r", statistics, OkStatus())["plan"].is_null());
  RunPlanInfo plan;
  plan.step = 1;
  plan.moments = 10;
  plan.classes.resize(1);
  plan.classes[0] = {4096, 3, 1, 4, 9, 8.5, false, true, {{4, 0.5}, {6, 0}}};
  run.record.plans = {plan};
  statistics = ComputeRunStatistics(run.record, {});
  const JsonValue json = ReportJson("r", statistics, OkStatus())["plan"];
  EXPECT_EQ(json["unit"], "links");
  EXPECT_EQ(json["made_after_step"], 1);
  const JsonValue& slots = json["slots"][0];
  EXPECT_EQ(slots["slot_bytes"], 4096);
  EXPECT_EQ(slots["shard_slots"], 1);
  EXPECT_EQ(slots["shards"], 4);
  EXPECT_EQ(slots["cost"], 9.0);
  EXPECT_EQ(slots["lower_bound"], 8.5);
  EXPECT_EQ(slots["one_more_saves"], 1.5);
  EXPECT_EQ(slots["one_less_costs"], 0.5);
  EXPECT_EQ(slots["dearest_moments"][1], 5);
  EXPECT_THAT(ReportPlain("r", statistics, OkStatus()),
              HasSubstr("slots\t4096\t3\tlinks\t9\t8.5\t1.5\t0.5\n"));
}

// All that a key in _bytes or _ns holds, alone, in a list or by name.
void CheckQuantities(const JsonValue& value, const std::string& path,
                     int* checked) {
  if (value.is_object()) {
    for (const std::string& key : value.keys()) {
      CheckQuantities(value[key], path + "/" + key, checked);
    }
  } else if (value.is_array()) {
    for (const JsonValue& one : value) CheckQuantities(one, path, checked);
  } else if (path.find("_bytes") != path.npos ||
             path.find("_ns") != path.npos) {
    EXPECT_TRUE(value.is_integer() || value.is_null()) << path;
    ++*checked;
  }
}

TEST(ReportDataTest, SizesAndTimesAreIntegers) {
  MadeRun run = TwoSteps();
  run.Arena("staging", 1 << 20);
  const JsonValue report =
      ReportJson("r", ComputeRunStatistics(run.record, {}), OkStatus());
  int checked = 0;
  CheckQuantities(report, "", &checked);
  EXPECT_GT(checked, 40);
}

TEST(ReportDataTest, SaysWhyARecordIsIncomplete) {
  const Status cut(ErrorCode::kStoppedEarly, "cut at byte 7");
  const RunStatistics nothing = ComputeRunStatistics(RunRecord(), {});
  const JsonValue report = ReportJson("r", nothing, cut);
  EXPECT_EQ(report["record"]["complete"], false);
  EXPECT_EQ(report["record"]["reason"], "cut at byte 7");
  EXPECT_TRUE(report["record"]["stage"].is_null());
  EXPECT_THAT(ReportPlain("r", nothing, cut),
              HasSubstr("record\tcomplete\tno\n"));
}

TEST(ReportDataTest, NamesThatAreNotTextStayJson) {
  MadeRun run = TwoSteps();
  run.record.ranks[0].chunks[2].params = "a\tb\n\xff";
  const RunStatistics statistics = ComputeRunStatistics(run.record, {});
  const JsonValue report = ReportJson("r", statistics, OkStatus());
  EXPECT_THAT(report["stalls"][0]["worst_chunks"][0]["parameters"].text(),
              HasSubstr("a\tb\n"));
  // A name must not make fields or lines.
  EXPECT_THAT(ReportPlain("r", statistics, OkStatus()),
              HasSubstr("\"a\\tb\\n\\xff\"\n"));
}

TEST(ReportDataTest, PlainHasOneFactALine) {
  const MadeRun run = TwoSteps();
  const std::string plain =
      ReportPlain("run.rec", ComputeRunStatistics(run.record, {}), OkStatus());
  EXPECT_THAT(plain, HasSubstr("record\tfile\trun.rec\n"));
  EXPECT_THAT(plain, HasSubstr("step\t2\tcomplete\t80000\t0\n"));
  EXPECT_THAT(plain, HasSubstr("tier\tdevice\t60\t100\t0\t1\n"));
  EXPECT_THAT(plain, HasSubstr("link\tall-gather\t2\t10000\t30000\t0\n"));
  EXPECT_THAT(plain, HasSubstr("stall\tprefetch\t1\t15000\n"));
  EXPECT_THAT(plain, HasSubstr("chunk\tprefetch\t2\t1\t15000\t\"layer.2\"\n"));
  EXPECT_THAT(plain, Not(HasSubstr("\n\n")));
}

}  // namespace
}  // namespace castor
