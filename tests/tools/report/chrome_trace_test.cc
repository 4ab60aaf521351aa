// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/chrome_trace.h"

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "chunk/text/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/test_seed.h"
#include "tests/tools/report/made_run.h"

namespace castor {
namespace {

using testing::IsSupersetOf;
using testing::StartsWith;

JsonValue Export(const RunRecord& record, const StepRange& steps = {}) {
  std::ostringstream out;
  WriteChromeTrace(record, steps, out);
  return ParseJson(out.str()).value();
}

// As Perfetto reads them.
int64_t Nanoseconds(const JsonValue& micros) {
  return std::llround(micros.real() * 1000);
}

// What viewers rely on, whatever the events.
void CheckRules(const JsonValue& trace) {
  int64_t last = 0;
  std::map<int64_t, int64_t> track_process;
  std::map<int64_t, int64_t> track_end;
  std::set<int64_t> named_tracks;
  std::map<std::string, bool> open;
  std::map<int64_t, const JsonValue*> flows;  // begun, by id
  for (const JsonValue& event : trace["traceEvents"]) {
    const std::string& phase = event["ph"].text();
    ASSERT_GT(event["pid"].integer(), 0) << event;
    if (phase == "M") {
      if (event["name"] == "thread_name") {
        EXPECT_TRUE(named_tracks.insert(event["tid"].integer()).second)
            << event;
      }
      continue;
    }
    const int64_t ns = Nanoseconds(event["ts"]);
    ASSERT_GE(ns, last) << event;
    last = ns;
    ASSERT_FALSE(event["name"].text().empty());
    if (phase == "X" || phase == "i") {
      const int64_t tid = event["tid"].integer();
      ASSERT_GT(tid, 0);
      ASSERT_TRUE(named_tracks.count(tid) == 1) << event;
      const auto [it, is_new] =
          track_process.emplace(tid, event["pid"].integer());
      ASSERT_EQ(it->second, event["pid"]) << "one track, two processes";
    }
    if (phase == "X") {
      int64_t& end = track_end[event["tid"].integer()];
      ASSERT_GE(ns, end) << "events of one track overlap: " << event;
      end = ns + Nanoseconds(event["dur"]);
    } else if (phase == "i") {
      ASSERT_EQ(event["s"], "t");
    } else if (phase == "C") {
      for (const JsonValue& bytes : event["args"]) {
        ASSERT_GE(bytes.integer(), 0) << event;
      }
    } else if (phase == "s" || phase == "f") {
      // Within the slice that its track shows at that time.
      ASSERT_LT(ns, track_end[event["tid"].integer()]) << event;
      ASSERT_EQ(track_process[event["tid"].integer()], event["pid"]);
      const JsonValue*& begun = flows[event["id"].integer()];
      if (phase == "s") {
        ASSERT_EQ(begun, nullptr) << event;
        begun = &event;
        continue;
      }
      ASSERT_NE(begun, nullptr) << event;
      ASSERT_EQ((*begun)["ph"], "s");
      ASSERT_EQ((*begun)["name"], event["name"]);
      ASSERT_EQ((*begun)["cat"], event["cat"]);
      ASSERT_EQ(event["bp"], "e");
      begun = &event;
    } else {
      ASSERT_TRUE(phase == "b" || phase == "e") << phase;
      bool& is_open = open[event["id"].text()];
      ASSERT_EQ(is_open, phase == "e") << event;
      is_open = phase == "b";
      ASSERT_EQ(event["cat"], "residency");
    }
  }
  for (const auto& [id, is_open] : open) EXPECT_FALSE(is_open) << id;
  for (const auto& [id, end] : flows) EXPECT_EQ((*end)["ph"], "f") << id;
}

std::vector<JsonValue> Select(const JsonValue& trace,
                              const std::string& phase) {
  std::vector<JsonValue> events;
  for (const JsonValue& event : trace["traceEvents"]) {
    if (event["ph"] == phase) events.push_back(event);
  }
  return events;
}

TEST(ChromeTraceTest, DrawsEachEventOnItsTrack) {
  MadeRun run(2);
  run.At(1, 1).Step(100, 200).Divergence(150);
  run.At(0, 1).Step(100, 190).TierBytes(Tier::kDevice, 100, 64);
  run.Move(Tier::kHost, Tier::kDevice, 110, 130, 4096, RunCause::kPrefetch, 3);
  run.Move(Tier::kHost, Tier::kDevice, 110, 140, 4096, RunCause::kDemand, 3);
  run.Gather(3, 112, 113, 9).Release(3, 180, RunCause::kRoom);
  const JsonValue trace = Export(run.record);
  CheckRules(trace);
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  EXPECT_EQ(trace["otherData"]["first_event_ns"], 100'000);

  std::map<int64_t, std::string> titles;
  std::vector<std::string> processes;
  for (const JsonValue& event : Select(trace, "M")) {
    if (event["name"] == "thread_name") {
      titles[event["tid"].integer()] = event["args"]["name"].text();
    } else if (event["name"] == "process_name") {
      processes.push_back(event["args"]["name"].text());
    }
  }
  EXPECT_EQ(processes, (std::vector<std::string>{"rank 0", "rank 1"}));

  const std::vector<JsonValue> slices = Select(trace, "X");
  ASSERT_EQ(slices.size(), 5u);
  std::vector<std::string> drawn;
  for (const JsonValue& slice : slices) {
    drawn.push_back(titles[slice["tid"].integer()] + ": " +
                    slice["name"].text());
  }
  EXPECT_THAT(drawn,
              IsSupersetOf({"steps: step 1", "host -> device: chunk 3 param",
                            "host -> device (2): chunk 3 param",
                            "all-gather: chunk 3"}));
  EXPECT_EQ(slices[2]["ts"], 10.0);
  EXPECT_EQ(slices[2]["dur"], 20.0);
  EXPECT_EQ(slices[2]["args"]["bytes"], 4096);
  EXPECT_EQ(slices[2]["args"]["cause"], "prefetch");

  const std::vector<JsonValue> counters = Select(trace, "C");
  std::vector<std::string> levels;
  for (const JsonValue& counter : counters) {
    levels.push_back(counter["name"].text() + " " + counter["args"].Dump());
  }
  EXPECT_THAT(
      levels,
      testing::UnorderedElementsAre(
          R"(device bytes {"bytes":64})",
          R"(device by kind {"gathered":0,"prefetched":1000,"borrowed":0})",
          R"(device by kind {"gathered":0,"prefetched":0,"borrowed":0})"));

  const std::vector<JsonValue> begins = Select(trace, "b");
  const std::vector<JsonValue> ends = Select(trace, "e");
  ASSERT_EQ(begins.size(), 1u);
  EXPECT_EQ(begins[0]["args"]["parameters"], "layer.3");
  EXPECT_EQ(begins[0]["ts"], 10.0);
  EXPECT_EQ(ends[0]["ts"], 80.0);
  EXPECT_EQ(ends[0]["args"]["released"], "room");

  const std::vector<JsonValue> instants = Select(trace, "i");
  ASSERT_EQ(instants.size(), 1u);
  EXPECT_EQ(instants[0]["pid"], 2);
  EXPECT_EQ(titles[instants[0]["tid"].integer()], "steps");
}

TEST(ChromeTraceTest, LeadsFromAPrefetchToTheFirstUse) {
  MadeRun run(1);
  run.At(0, 1);
  // Its shard comes first; the gather makes it whole.
  run.Move(Tier::kHost, Tier::kDevice, 10, 20, 9, RunCause::kPrefetch, 1);
  run.Gather(1, 20, 30, 9).Use(1, 5, 8).Use(1, 40, 50).Use(1, 60, 70);
  run.Release(1, 80).Use(1, 90, 95);
  // Asked for, never used, used at once, and used without taking time.
  run.Gather(2, 10, 20, 9, RunCause::kDemand).Use(2, 20, 30);
  run.Gather(3, 10, 20, 9).Release(3, 25).Use(3, 26, 30);
  run.Gather(0, 100, 120, 9).Use(0, 110, 115).Release(0, 120);
  run.Gather(0, 130, 140, 9).Use(0, 150, 150);
  const JsonValue trace = Export(run.record);
  CheckRules(trace);
  std::map<int64_t, std::string> titles;
  for (const JsonValue& event : Select(trace, "M")) {
    if (event["name"] != "thread_name") continue;
    titles[event["tid"].integer()] = event["args"]["name"].text();
  }
  const std::vector<JsonValue> begins = Select(trace, "s");
  const std::vector<JsonValue> ends = Select(trace, "f");
  ASSERT_EQ(begins.size(), 2u);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(Nanoseconds(begins[0]["ts"]), 24'999);
  EXPECT_THAT(titles[begins[0]["tid"].integer()], StartsWith("all-gather"));
  EXPECT_EQ(Nanoseconds(ends[0]["ts"]), 35'000);
  EXPECT_THAT(titles[ends[0]["tid"].integer()], StartsWith("chunks in use"));
  EXPECT_EQ(begins[0]["id"], ends[0]["id"]);
  EXPECT_EQ(Nanoseconds(begins[1]["ts"]), 105'000);
  EXPECT_EQ(Nanoseconds(ends[1]["ts"]), 105'000);
}

TEST(ChromeTraceTest, HoldsTheStepsAskedFor) {
  MadeRun run(1);
  for (int32_t step = 0; step <= 4; ++step) {
    run.At(0, step).Use(1, step * 10, step * 10 + 5);
  }
  EXPECT_EQ(Select(Export(run.record), "X").size(), 5u);
  const JsonValue some = Export(run.record, {2, 3});
  EXPECT_EQ(Select(some, "X").size(), 2u);
  EXPECT_EQ(some["otherData"]["first_event_ns"], 20'000);
}

TEST(ChromeTraceTest, AnEmptyRecordIsAnEmptyTrace) {
  const JsonValue trace = Export(RunRecord());
  EXPECT_TRUE(trace["traceEvents"].empty());
}

TEST(ChromeTraceTest, NamesThatAreNotTextStayJson) {
  MadeRun run(1, 1);
  run.record.ranks[0].chunks[0].params = "a\"\\\n\xff\xc3";
  run.At(0, 1).Gather(0, 1, 2, 3).Release(0, 4);
  const JsonValue trace = Export(run.record);
  CheckRules(trace);
  const std::string name = Select(trace, "b")[0]["args"]["parameters"].text();
  EXPECT_EQ(name.substr(0, 4), "a\"\\\n");
}

TEST(ChromeTraceTest, KeepsTheRulesForAnyEvents) {
  std::mt19937_64 random(TestSeed(34));
  for (int round = 0; round < 100; ++round) {
    RunRecord record;
    record.ranks.push_back(SomeRank(1, 8, 20));
    record.events = RandomEvents(random, random() % 300);
    Crowd(random, &record.events);
    CheckRules(Export(record));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace castor
