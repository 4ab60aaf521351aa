// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/memory_snapshot.h"

#include <cstdint>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/test_seed.h"
#include "tests/tools/report/from_pickle.h"
#include "tests/tools/report/made_run.h"

namespace castor {
namespace {

using testing::ElementsAre;

JsonValue Export(const RunRecord& record, const StepRange& steps = {}) {
  std::ostringstream out;
  WriteMemorySnapshot(record, steps, out);
  return FromPickle(out.str());
}

// What viewers rely on, whatever the events.
void CheckRules(const JsonValue& snapshot) {
  const JsonValue& segments = snapshot["segments"];
  ASSERT_EQ(segments.size(), snapshot["device_traces"].size());
  int64_t end_of_last = 0;
  for (size_t device = 0; device < segments.size(); ++device) {
    const JsonValue& segment = segments[device];
    ASSERT_EQ(segment["device"], static_cast<int64_t>(device));
    const int64_t begin = segment["address"].integer();
    const int64_t end = begin + segment["total_size"].integer();
    ASSERT_GE(begin, end_of_last);
    ASSERT_GT(end, begin);
    end_of_last = end;

    std::map<int64_t, int64_t> alive;  // sizes by address
    int64_t last_us = 0;
    int64_t asked_free = -1;
    for (const JsonValue& entry : snapshot["device_traces"][device]) {
      const std::string& action = entry["action"].text();
      const int64_t addr = entry["addr"].integer();
      const int64_t size = entry["size"].integer();
      ASSERT_GT(size, 0);
      ASSERT_GE(entry["time_us"].integer(), last_us);
      last_us = entry["time_us"].integer();
      ASSERT_EQ(entry["device"], static_cast<int64_t>(device));
      ASSERT_FALSE(entry["frames"].empty());
      for (const JsonValue& frame : entry["frames"]) {
        ASSERT_FALSE(frame["name"].text().empty());
        ASSERT_EQ(frame["filename"], "castor");
        ASSERT_EQ(frame["line"], 0);
      }
      if (action == "segment_alloc") {
        ASSERT_EQ(addr, begin);
        ASSERT_EQ(addr + size, end);
      } else if (action == "alloc") {
        ASSERT_GE(addr, begin);
        ASSERT_LE(addr + size, end);
        const auto next = alive.lower_bound(addr);
        if (next != alive.end()) {
          ASSERT_LE(addr + size, next->first);
        }
        if (next != alive.begin()) {
          const auto before = std::prev(next);
          ASSERT_LE(before->first + before->second, addr);
        }
        alive[addr] = size;
      } else if (action == "free_requested") {
        ASSERT_EQ(alive.at(addr), size);
        asked_free = addr;
      } else {
        ASSERT_EQ(action, "free_completed");
        ASSERT_EQ(addr, asked_free);
        alive.erase(addr);
      }
    }

    int64_t at = begin;
    int64_t left = 0;
    for (const JsonValue& block : segment["blocks"]) {
      ASSERT_EQ(block["address"], at);
      const int64_t size = block["size"].integer();
      if (block["state"] == "active_allocated") {
        ASSERT_EQ(alive.count(at), 1u);
        ASSERT_EQ(alive[at], size);
        alive.erase(at);
        left += size;
      } else {
        ASSERT_EQ(block["state"], "inactive");
      }
      at += size;
    }
    ASSERT_EQ(at, end);
    ASSERT_TRUE(alive.empty()) << "the final blocks lack what is alive";
    ASSERT_EQ(segment["allocated_size"], left);
  }
}

// "alloc 1000 chunk 2: layer.2 (fetched ahead)"; freed ones once.
std::vector<std::string> Happenings(const JsonValue& snapshot, size_t device) {
  std::vector<std::string> lines;
  for (const JsonValue& entry : snapshot["device_traces"][device]) {
    const std::string& action = entry["action"].text();
    if (action == "segment_alloc" || action == "free_requested") continue;
    lines.push_back(std::to_string(entry["time_us"].integer()) + " " +
                    (action == "alloc" ? "alloc " : "free ") +
                    std::to_string(entry["size"].integer()) + " " +
                    entry["frames"][size_t{0}]["name"].text());
  }
  return lines;
}

std::string NameOf(const JsonValue& snapshot, size_t device) {
  const JsonValue& frames = snapshot["segments"][device]["frames"];
  return frames[size_t{0}]["name"].text();
}

RunHomesInfo Homes(int32_t rank, int32_t step, StateKind state, Tier tier,
                   int64_t bytes) {
  RunHomesInfo homes;
  homes.rank = rank;
  homes.step = step;
  homes.home_bytes[static_cast<size_t>(state)][TierIndex(tier)] = bytes;
  return homes;
}

void AddLease(MadeRun& run, int64_t begin, int64_t end, int64_t bytes) {
  run.Use(0, begin, end);
  run.record.events.back().kind = RunEventKind::kLease;
  run.record.events.back().chunk = -1;
  run.record.events.back().bytes = bytes;
}

TEST(MemorySnapshotTest, ShowsWhoHeldWhatOfEachTier) {
  MadeRun run(2);
  run.record.homes = {
      Homes(0, 1, OptimizerState(0), Tier::kHost, 40 << 20),
      Homes(1, 1, StateKind::kParam, Tier::kNvme, 4096),
  };
  run.At(0, 1).Step(100, 200).TierBytes(Tier::kDevice, 100, 3500);
  run.Move(Tier::kHost, Tier::kDevice, 110, 120, 500, RunCause::kPrefetch, 2);
  run.Gather(2, 120, 130, 500).Release(2, 150);
  AddLease(run, 140, 160, 1500);
  run.Gather(3, 170, 180, 1000, RunCause::kDemand);
  run.At(1, 1).Step(100, 200);
  const JsonValue snapshot = Export(run.record);
  CheckRules(snapshot);
  ASSERT_EQ(snapshot["segments"].size(), 3u);
  EXPECT_EQ(NameOf(snapshot, 0), "rank 0, device");
  EXPECT_EQ(NameOf(snapshot, 1), "rank 0, host");
  EXPECT_EQ(NameOf(snapshot, 2), "rank 1, nvme");
  // While the copy and the lease are there, 1000 bytes are left of 3500.
  EXPECT_THAT(
      Happenings(snapshot, 0),
      ElementsAre(
          "0 alloc 1000 slots without a copy, staging and buffers, at least "
          "1000 B",
          "10 alloc 1000 chunk 2: layer.2 (fetched ahead)",
          "40 alloc 1500 lease, 1.46 KiB",
          "50 free 1000 chunk 2: layer.2 (fetched ahead)",
          "60 free 1500 lease, 1.46 KiB",
          "70 alloc 1000 chunk 3: layer.3 (fetched when asked for)"));
  EXPECT_THAT(Happenings(snapshot, 1),
              ElementsAre("0 alloc 41943040 exp_avg at home on host, 40 MiB"));
  EXPECT_THAT(Happenings(snapshot, 2),
              ElementsAre("0 alloc 4096 param at home on nvme, 4 KiB"));
}

TEST(MemorySnapshotTest, HomesChangeWhereTheEngineWasResealed) {
  MadeRun run(1);
  run.record.homes = {
      Homes(0, 1, StateKind::kMaster, Tier::kHost, 100),
      Homes(0, 2, StateKind::kMaster, Tier::kHost, 100),
      Homes(0, 3, StateKind::kMaster, Tier::kHost, 50),
      Homes(0, 9, StateKind::kMaster, Tier::kHost, 10),
  };
  run.At(0, 1).Step(0, 10).At(0, 2).Step(10, 20).At(0, 3).Step(20, 30);
  EXPECT_THAT(Happenings(Export(run.record), 0),
              ElementsAre("0 alloc 100 master at home on host, 100 B",
                          "20 free 100 master at home on host, 100 B",
                          "20 alloc 50 master at home on host, 50 B"));
  EXPECT_THAT(Happenings(Export(run.record, {3, 3}), 0),
              ElementsAre("0 alloc 50 master at home on host, 50 B"));
}

TEST(MemorySnapshotTest, HoldsTheStepsAskedFor) {
  MadeRun run(1);
  run.At(0, 1).TierBytes(Tier::kDevice, 0, 1200).Gather(1, 0, 5, 9);
  run.Release(1, 8).At(0, 2).Gather(2, 10, 15, 9).Release(2, 18);
  // What was in use is known from before.
  EXPECT_THAT(
      Happenings(Export(run.record, {2, 2}), 0),
      ElementsAre(
          "0 alloc 200 slots without a copy, staging and buffers, at least "
          "200 B",
          "0 alloc 1000 chunk 2: layer.2 (fetched ahead)",
          "8 free 1000 chunk 2: layer.2 (fetched ahead)"));
}

TEST(MemorySnapshotTest, AnEmptyRecordIsAnEmptySnapshot) {
  const JsonValue snapshot = Export(RunRecord());
  EXPECT_TRUE(snapshot["segments"].empty());
  EXPECT_TRUE(snapshot["device_traces"].empty());
}

TEST(MemorySnapshotTest, LeavesOutSizesThatOnlyDamageExplains) {
  MadeRun run(1, 40);
  for (RunChunkInfo& chunk : run.record.ranks[0].chunks) {
    chunk.bytes = int64_t{1} << 48;
  }
  run.record.homes = {
      Homes(0, 1, StateKind::kParam, Tier::kDevice, int64_t{1} << 60)};
  run.At(0, 1).TierBytes(Tier::kDevice, 0, int64_t{1} << 60);
  for (int chunk = 0; chunk < 40; ++chunk) run.Gather(chunk, chunk, 50, 9);
  const JsonValue snapshot = Export(run.record);
  CheckRules(snapshot);
  EXPECT_EQ(Happenings(snapshot, 0).size(), 4u);
}

TEST(MemorySnapshotTest, KeepsTheRulesForAnyEvents) {
  std::mt19937_64 random(TestSeed(35));
  for (int round = 0; round < 20; ++round) {
    RunRecord record;
    for (int rank = 0; rank < 8; ++rank) {
      record.ranks.push_back(SomeRank(rank, 8, 20));
      record.homes.push_back(Homes(rank, 1 + rank * 10, StateKind::kParam,
                                   Tier::kHost, (rank % 3) * 100));
      record.homes.push_back(
          Homes(rank % 4, 40 + rank, StateKind::kParam, Tier::kHost, 300));
    }
    record.events = RandomEvents(random, random() % 600);
    Crowd(random, &record.events);
    CheckRules(Export(record));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace castor
