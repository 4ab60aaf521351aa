// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/report_document.h"

#include <string>

#include "chunk/text/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/report/made_run.h"
#include "tools/cli/text/document.h"
#include "tools/cli/text/text_forms.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

MadeRun TwoSteps() {
  MadeRun run(1);
  run.At(0, 1).Step(0, 100).TierBytes(Tier::kDevice, 10, 60);
  run.Gather(2, 10, 30, 5'000).Stall(RunCause::kPrefetch, 2, 15, 30);
  run.At(0, 2).Step(100, 180).Gather(2, 110, 120, 5'000);
  return run;
}

// Three steps on two ranks.
MadeRun ThreeSteps() {
  MadeRun run(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    run.At(rank, 0).Move(Tier::kDevice, Tier::kHost, -50, -10, 1 << 20);
    run.TierBytes(Tier::kDevice, -50, 10).TierBytes(Tier::kHost, -10, 5'000);
    for (int32_t step = 1; step <= 3; ++step) {
      const int64_t begin = 1000 * step;
      run.At(rank, step).Step(begin, begin + 900 + 10 * step);
      run.TierBytes(Tier::kDevice, begin, 25);
      run.TierBytes(Tier::kDevice, begin + 450, 75);
      run.TierBytes(Tier::kDevice, begin + 700, 50);
      run.Move(Tier::kHost, Tier::kDevice, begin, begin + 300, 1 << 20,
               RunCause::kPrefetch, 1);
      run.Gather(1, begin + 300, begin + 400, 1 << 20);
      run.Stall(RunCause::kPrefetch, 1, begin + 250, begin + 400 + 20 * rank);
      run.Release(1, begin + 800).Update(1, begin + 850, begin + 900);
    }
  }
  run.At(1, 1).Stall(RunCause::kDemand, 3, 1500, 1600);
  return run;
}

Document Report(const MadeRun& run, const StripInk ink = StripInk::kAscii) {
  return ReportDocument("run.rec", ComputeRunStatistics(run.record, {}),
                        run.record.completeness, {}, ink);
}

TEST(ReportDocumentTest, JsonHoldsTheNumbers) {
  const JsonValue report = Report(TwoSteps()).Json();
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

TEST(ReportDocumentTest, PlainHasOneFactALine) {
  const std::string plain = Report(TwoSteps()).Plain();
  EXPECT_THAT(plain, HasSubstr("record\tfile\trun.rec\n"));
  EXPECT_THAT(plain, HasSubstr("step\t2\tcomplete\t80000\t0\n"));
  EXPECT_THAT(plain, HasSubstr("tier\tdevice\t60\t100\t0\t1\n"));
  EXPECT_THAT(plain, HasSubstr("link\tall-gather\t2\t10000\t30000\t0\n"));
  EXPECT_THAT(plain, HasSubstr("stall\tprefetch\t1\t15000\n"));
  EXPECT_THAT(plain, HasSubstr("chunk\tprefetch\t2\t1\t15000\t\"layer.2\"\n"));
  EXPECT_THAT(plain, Not(HasSubstr("\n\n")));
}

TEST(ReportDocumentTest, ShowsEverySubjectOnAPage) {
  EXPECT_THAT(
      Report(ThreeSteps()).Page(),
      AllOf(HasSubstr("run.rec: 2 ranks, ZeRO stage 3, 4 chunks of up to 1000 "
                      "B, 61 events, 0 dropped, 0 B\n\n"),
            HasSubstr("all-gather holds the step up for 17 % of it; chunk 1, "
                      "layer.1, is waited for most.\n\n  Steps 1-3 "),
            HasSubstr("  time            910 us  920 us  930 us  step 3\n"),
            HasSubstr("computing 80.80 %, stalled 19.20 %; optimizer at work "
                      "5.43 %; moves hidden behind computing 62.50 %\n"),
            HasSubstr("6 times, 100.00 % ahead of use"),
            HasSubstr("rank 1: 22.10 %; least, rank 0: 16.30 %"),
            HasSubstr("  device  |---------------=########++++++++|      75 B  "
                      "    100 B  75.00 %\n"),
            HasSubstr("  all-gather      |          +@@@.                 |"),
            HasSubstr("not counted above: 2 MiB\n"),
            HasSubstr("  prefetch    960 us   17.39 %      6  1 (960 us)\n"),
            HasSubstr("\nprefetch    chunk 1 is \"layer.1\"; all-gather was "
                      "busy 62 % of that time: ")));
  EXPECT_THAT(Report(ThreeSteps(), StripInk::kBlocks).Page(),
              AllOf(HasSubstr("\u2588\u2588\u2588"), Not(HasSubstr("@"))));
}

TEST(ReportDocumentTest, SumsPinnedArenasOverRanksOnAPage) {
  MadeRun run = ThreeSteps();
  run.At(0, 1).Arena("staging", 1 << 20).Arena("checkpoints", 1 << 24);
  run.At(1, 1).Arena("staging", 1 << 20);
  const Document report = Report(run);
  EXPECT_THAT(
      report.Page(),
      AllOf(HasSubstr("  checkpoints    8 MiB  16 MiB    4 MiB    4 MiB     8 "
                      "MiB       0 B        1  jemalloc 5.3.0, 1 rank\n"),
            HasSubstr("  staging        1 MiB   2 MiB  512 KiB  514 KiB     1 "
                      "MiB       0 B        2  jemalloc 5.3.0, 2 ranks, not "
                      "locked\n")));
  const JsonValue& arenas = report.Json()["pinned_arenas"];
  ASSERT_EQ(arenas.size(), 3u);
  EXPECT_EQ(arenas[0]["name"], "staging");
  EXPECT_EQ(arenas[0]["allocator"], "jemalloc 5.3.0");
  EXPECT_EQ(arenas[0]["locked"], true);
  EXPECT_EQ(arenas[0]["budget_bytes"], 1 << 20);
  EXPECT_EQ(arenas[0]["peak_bytes"], 1 << 19);
  EXPECT_EQ(arenas[0]["live_bytes"], 1 << 18);
  EXPECT_EQ(arenas[0]["refused"], 1);
  EXPECT_THAT(report.Plain(),
              HasSubstr("arena\t\"staging\"\t0\t\"jemalloc 5.3.0\"\t524288\t"
                        "1048576\t262144\t263168\t525312\t0\t40\t1\n"));
}

TEST(ReportDocumentTest, HoldsThePricesOfSlots) {
  MadeRun run = ThreeSteps();
  EXPECT_TRUE(Report(run).Json()["plan"].is_null());
  RunPlanInfo plan;
  plan.step = 1;
  plan.moments = 10;
  plan.classes.resize(2);
  plan.classes[0] = {4096, 3, 1, 4, 9, 8.5, false, true, {{4, 0.5}, {6, 0}}};
  plan.classes[1] = {512, 1, 0, 0, 0.002, 0.001, false, false, {}};
  run.record.plans = {plan};
  const Document report = Report(run);
  const JsonValue& json = report.Json()["plan"];
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
  EXPECT_EQ(slots["dearest_accesses"][1], 5);
  EXPECT_FALSE(json["slots"][1].contains("dearest_accesses"));
  EXPECT_THAT(report.Plain(),
              AllOf(HasSubstr("slots\t4096\t3\tlinks\t9\t8.5\t1.5\t0.5\n"),
                    HasSubstr("slots\t512\t1\tlinks\t0.002\t0.001\t-1\t-1\n")));
  EXPECT_THAT(report.Page(), HasSubstr("1 of up to 4"));
  run.record.plans[0].in_seconds = true;
  EXPECT_THAT(Report(run).Page(), HasSubstr("9.00 s"));
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

TEST(ReportDocumentTest, SizesAndTimesAreIntegers) {
  MadeRun run = TwoSteps();
  run.Arena("staging", 1 << 20);
  int checked = 0;
  CheckQuantities(Report(run).Json(), "", &checked);
  EXPECT_GT(checked, 40);
}

TEST(ReportDocumentTest, SaysWhatIsMissing) {
  MadeRun nobody(0);
  nobody.Cut();
  const Document report = Report(nobody);
  EXPECT_EQ(report.Json()["record"]["complete"], false);
  EXPECT_EQ(report.Json()["record"]["reason"], "cut");
  EXPECT_TRUE(report.Json()["record"]["stage"].is_null());
  EXPECT_THAT(report.Plain(), HasSubstr("record\tcomplete\tno\n"));
  EXPECT_EQ(report.Page(),
            "run.rec: 0 events, 0 dropped, 0 B\n\n"
            "No step of a run is in the record.\n");
  MadeRun cut(1);
  cut.Cut().At(0, 7).Use(0, 10, 20);
  EXPECT_THAT(Report(cut).Page(),
              AllOf(HasSubstr("Step 7: none of 1 is complete"),
                    HasSubstr("No stalls.")));
  cut.At(0, 6).Step(0, 10);
  EXPECT_THAT(Report(cut).Page(), HasSubstr("1 of 2 steps are complete"));
}

TEST(ReportDocumentTest, NamesCannotTalkToTheTerminalNorMakeFields) {
  MadeRun run = ThreeSteps();
  run.record.ranks[0].chunks[1].params =
      "\x1b[2J\tb\n\xff" + std::string(500, 'x');
  run.Arena("\x1b[2J", 1 << 20);
  const Document report = Report(run);
  EXPECT_THAT(report.Page(), AllOf(Not(HasSubstr("\x1b")),
                                   Not(HasSubstr(std::string(100, 'x')))));
  EXPECT_THAT(report.Plain(), HasSubstr("\"\\x1b[2J\\tb\\n\\xff"));
  EXPECT_THAT(
      report.Json()["stalls"][0]["worst_chunks"][0]["parameters"].text(),
      HasSubstr("[2J\tb\n"));
}

}  // namespace
}  // namespace castor
