// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/record_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/event_ring.h"
#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/file_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

std::unique_ptr<FileRecorder> MustCreate(
    const std::string& path, const FileRecorderOptions& options = {}) {
  auto recorder = FileRecorder::Create(path, options);
  EXPECT_THAT(recorder, IsOk());
  return std::move(recorder).value();
}

RunRecord MustRead(const std::string& path) {
  auto record = ReadRecord(path);
  EXPECT_THAT(record, IsOk());
  return std::move(record).value();
}

TEST(RecordWriterTest, WhatIsRecordedIsReadBack) {
  const TempDir dir;
  std::mt19937_64 random(TestSeed(10));
  const std::vector<RunEvent> events = RandomEvents(random, 5'000);
  auto recorder = MustCreate(dir.File("run"));
  recorder->AddRank(SomeRank(1, 2, 5));
  recorder->AddRank(SomeRank(0, 2, 5));
  for (const RunEvent& event : events) recorder->Record(event);
  ASSERT_THAT(recorder->Close(), IsOk());
  EXPECT_EQ(recorder->totals(), (RecordTotals{2, 5'000, 0}));
  EXPECT_EQ(recorder->file_bytes(),
            static_cast<int64_t>(std::filesystem::file_size(dir.File("run"))));

  const RunRecord record = MustRead(dir.File("run"));
  EXPECT_THAT(record.completeness, IsOk());
  EXPECT_EQ(record.events, events);
  EXPECT_EQ(record.dropped, 0);
  ASSERT_EQ(record.ranks.size(), 2u);
  EXPECT_EQ(record.ranks[0].rank, 0);
  EXPECT_EQ(record.ranks[1].chunks.size(), 5u);
}

TEST(RecordWriterTest, WhatComesAfterTheEndIsNotDropped) {
  const TempDir dir;
  FileRecorderOptions options;
  options.ring_events = size_t{1} << 20;  // more than the threads push
  auto recorder = MustCreate(dir.File("run"), options);
  std::atomic<int> pushed = 0;
  std::vector<std::thread> late;
  for (int t = 0; t < 2; ++t) {
    late.emplace_back([&] {
      for (int i = 0; i < 200'000; ++i, ++pushed) recorder->Record(RunEvent());
    });
  }
  while (pushed < 1'000) std::this_thread::yield();
  EXPECT_THAT(recorder->Close(), IsOk());
  for (std::thread& thread : late) thread.join();
  EXPECT_EQ(recorder->totals().dropped, 0);
  EXPECT_EQ(MustRead(dir.File("run")).dropped, 0);
}

TEST(RecordWriterTest, OfManyStepsSomeAreRecordedWithTheLevelsBeforeThem) {
  const TempDir dir;
  FileRecorderOptions options;
  options.first_step = 2;
  options.last_step = 9;
  options.every = 3;
  auto recorder = MustCreate(dir.File("run"), options);
  recorder->AddRank(SomeRank(0, 1, 1));
  for (int32_t step = 0; step < 12; ++step) {
    RunEvent level;
    level.kind = RunEventKind::kTierBytes;
    level.step = step;
    level.bytes = 100 + step;
    level.begin_ns = level.end_ns = 10 * step;
    recorder->Record(level);
    RunEvent whole;
    whole.step = step;
    whole.begin_ns = 10 * step + 1;
    whole.end_ns = 10 * step + 9;
    recorder->Record(whole);
  }
  ASSERT_THAT(recorder->Close(), IsOk());
  std::vector<int32_t> steps;
  std::vector<int64_t> opening;
  for (const RunEvent& event : MustRead(dir.File("run")).events) {
    if (event.kind == RunEventKind::kStep) steps.push_back(event.step);
    if (event.kind == RunEventKind::kTierBytes) opening.push_back(event.bytes);
  }
  EXPECT_THAT(steps, testing::ElementsAre(2, 5, 8));
  // The last of before, and the step's own.
  EXPECT_THAT(opening, testing::ElementsAre(101, 102, 104, 105, 107, 108));
}

TEST(RecordWriterTest, ADocumentIsKeptWhereItSaysSomethingNew) {
  const TempDir dir;
  auto recorder = MustCreate(dir.File("run"));
  const RunDocument first = {0, 1, "{\"schema\": \"a/1\", \"n\": 1}"};
  const RunDocument second = {1, 3, "{\"schema\": \"a/1\", \"n\": 2}"};
  const RunDocument other = {0, 1, "{\"schema\": \"b/1\", \"n\": 1}"};
  const RunDocument first_again = {0, 5, first.text};
  for (const RunDocument& document : {first, other, second}) {
    recorder->AddDocument(document);
    // Of another rank, with the same words.
    recorder->AddDocument({1, document.step, document.text});
  }
  recorder->AddDocument(first_again);
  // Longer than any frame.
  recorder->AddDocument({0, 1, std::string(kMaxFramePayload, ' ')});
  ASSERT_THAT(recorder->Close(), IsOk());
  EXPECT_THAT(MustRead(dir.File("run")).documents,
              testing::ElementsAre(first, other, second, first_again));
}

TEST(RecordWriterTest, TheLastWordOnAnArenaHolds) {
  const TempDir dir;
  auto recorder = MustCreate(dir.File("run"));
  recorder->AddRank(SomeRank(0, 2, 1));
  recorder->AddRank(SomeRank(1, 2, 1));
  RunArenaInfo early = SomeArena(0, "staging");
  early.refused = 99;
  recorder->AddArena(early);
  recorder->AddArena(SomeArena(1, "staging"));
  recorder->AddArena(SomeArena(0, "checkpoints"));
  recorder->AddArena(SomeArena(0, "staging"));
  ASSERT_THAT(recorder->Close(), IsOk());
  recorder->AddArena(SomeArena(0, "late"));
  const RunRecord record = MustRead(dir.File("run"));
  EXPECT_THAT(record.completeness, IsOk());
  EXPECT_EQ(record.arenas,
            (std::vector{SomeArena(0, "checkpoints"), SomeArena(0, "staging"),
                         SomeArena(1, "staging")}));
}

TEST(RecordWriterTest, TheLastPlanOfARankHolds) {
  const TempDir dir;
  auto recorder = MustCreate(dir.File("run"));
  recorder->AddRank(SomeRank(0, 1, 1));
  RunPlanInfo early = SomePlan(0);
  early.classes.clear();
  recorder->AddPlan(early);
  recorder->AddPlan(SomePlan(0));
  ASSERT_THAT(recorder->Close(), IsOk());
  recorder->AddPlan(early);
  EXPECT_EQ(MustRead(dir.File("run")).plans, std::vector{SomePlan(0)});
}

TEST(RecordWriterTest, AWindowHoldsItsStepsAndHowFullTiersWereBefore) {
  const TempDir dir;
  FileRecorderOptions options;
  options.first_step = 3;
  options.last_step = 4;
  auto recorder = MustCreate(dir.File("run"), options);
  recorder->AddRank(SomeRank(0, 1, 1));
  const auto record_event = [&](RunEventKind kind, int32_t step,
                                int64_t bytes) {
    RunEvent event;
    event.kind = kind;
    event.step = step;
    event.bytes = bytes;
    event.begin_ns = event.end_ns = step * 10;
    recorder->Record(event);
  };
  for (int32_t step = 0; step < 7; ++step) {
    record_event(RunEventKind::kTierBytes, step, 100 + step);
    record_event(RunEventKind::kUse, step, step);
    record_event(RunEventKind::kStep, step, 0);
  }
  recorder->AddMark({70, 0, 6, "the end"});
  ASSERT_THAT(recorder->Close(), IsOk());
  const RunRecord record = MustRead(dir.File("run"));
  EXPECT_THAT(record.completeness, IsOk());
  EXPECT_EQ(record.dropped, 0);
  ASSERT_EQ(record.events.size(), 7u);
  // The level of step 2 is what there was when the window opened.
  EXPECT_EQ(record.events[0].bytes, 102);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(record.events[i].step, i < 4 ? 3 : 4);
  }
  EXPECT_EQ(record.marks, (std::vector<RunMark>{{70, 0, 6, "the end"}}));
}

TEST(RecordWriterTest, ARecordOfNothingIsComplete) {
  const TempDir dir;
  ASSERT_THAT(MustCreate(dir.File("run"))->Close(), IsOk());
  const RunRecord record = MustRead(dir.File("run"));
  EXPECT_THAT(record.completeness, IsOk());
  EXPECT_TRUE(record.events.empty());
}

TEST(RecordWriterTest, AFullRingDropsAndCounts) {
  const TempDir dir;
  FileRecorderOptions options;
  options.ring_events = 8;
  options.interval = hours(1);  // nothing is written before Close
  auto recorder = MustCreate(dir.File("run"), options);
  for (int64_t i = 0; i < 30; ++i) {
    RunEvent event;
    event.bytes = i;
    recorder->Record(event);
  }
  ASSERT_THAT(recorder->Close(), IsOk());
  EXPECT_EQ(recorder->totals(), (RecordTotals{0, 8, 22}));
  const RunRecord record = MustRead(dir.File("run"));
  EXPECT_THAT(record.completeness, IsOk());
  ASSERT_EQ(record.events.size(), 8u);
  EXPECT_EQ(record.events.back().bytes, 7);
  EXPECT_EQ(record.dropped, 22);
}

TEST(RecordWriterTest, AKilledRunLeavesAReadableRecord) {
  const TempDir dir;
  FileRecorderOptions options;
  options.interval = milliseconds(1);
  auto recorder = MustCreate(dir.File("run"), options);
  recorder->AddRank(SomeRank(0, 1, 2));
  for (int i = 0; i < 100; ++i) recorder->Record(RunEvent());
  // What the file holds while the run goes on is what a kill would leave.
  RunRecord record;
  for (int i = 0; i < 10'000 && record.events.size() < 100; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
    record = MustRead(dir.File("run"));
    EXPECT_THAT(record.completeness, StatusIs(ErrorCode::kStoppedEarly));
  }
  EXPECT_EQ(record.events.size(), 100u);
  EXPECT_EQ(record.ranks.size(), 1u);
  EXPECT_THAT(record.completeness.message(), Says("no end frame"));
}

TEST(RecordWriterTest, ManyThreadsRecordAtOnce) {
  constexpr int kThreads = 8;
  constexpr int64_t kEach = 4'000;
  const TempDir dir;
  FileRecorderOptions options;
  options.ring_events = 1024;
  options.interval = milliseconds(1);
  auto recorder = MustCreate(dir.File("run"), options);
  std::vector<std::thread> threads;
  for (int32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      recorder->AddRank(SomeRank(t, kThreads, 1));
      for (int64_t i = 0; i < kEach; ++i) {
        RunEvent event;
        event.rank = t;
        event.bytes = i;
        recorder->Record(event);
        if (i % 256 == 0) std::this_thread::sleep_for(milliseconds(1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_THAT(recorder->Close(), IsOk());

  const RunRecord record = MustRead(dir.File("run"));
  EXPECT_THAT(record.completeness, IsOk());
  EXPECT_EQ(record.ranks.size(), size_t{kThreads});
  EXPECT_EQ(static_cast<int64_t>(record.events.size()) + record.dropped,
            kThreads * kEach);
  std::vector<int64_t> last(kThreads, -1);
  for (const RunEvent& event : record.events) {
    int64_t& before = last[static_cast<size_t>(event.rank)];
    ASSERT_GT(event.bytes, before) << "rank " << event.rank;
    before = event.bytes;
  }
}

TEST(RecordWriterTest, ARankStandsBeforeItsEventsEvenInACutRecord) {
  const TempDir dir;
  FileRecorderOptions options;
  options.interval = milliseconds(1);
  auto recorder = MustCreate(dir.File("run"), options);
  std::vector<std::thread> threads;
  for (int32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::this_thread::sleep_for(milliseconds(2 * t));
      recorder->AddRank(SomeRank(t, 4, 1));
      RunEvent event;
      event.rank = t;
      for (int i = 0; i < 50; ++i) recorder->Record(event);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_THAT(recorder->Close(), IsOk());
  const std::string bytes = FileText(dir.File("run"));
  for (size_t size = kRecordHeaderBytes; size <= bytes.size(); ++size) {
    ASSERT_OK_AND_ASSIGN(const auto record,
                         ParseRecord(std::string_view(bytes).substr(0, size)));
    std::vector<bool> known(4, false);
    for (const RunRankInfo& rank : record.ranks) {
      known[static_cast<size_t>(rank.rank)] = true;
    }
    for (const RunEvent& event : record.events) {
      ASSERT_TRUE(known[static_cast<size_t>(event.rank)]) << size;
    }
  }
}

TEST(RecordWriterTest, EventsAfterCloseAreIgnored) {
  const TempDir dir;
  auto recorder = MustCreate(dir.File("run"));
  recorder->Record(RunEvent());
  EXPECT_THAT(recorder->Close(), IsOk());
  recorder->Record(RunEvent());
  EXPECT_THAT(recorder->Close(), IsOk());
  EXPECT_EQ(MustRead(dir.File("run")).events.size(), 1u);
}

TEST(RecordWriterTest, TheDestructorCloses) {
  const TempDir dir;
  MustCreate(dir.File("run"))->Record(RunEvent());
  const RunRecord record = MustRead(dir.File("run"));
  EXPECT_THAT(record.completeness, IsOk());
  EXPECT_EQ(record.events.size(), 1u);
}

TEST(RecordWriterTest, ReplacesAnOldRecordButNotOneInUse) {
  const TempDir dir;
  std::ofstream(dir.File("run")) << std::string(10'000, 'x');
  auto recorder = MustCreate(dir.File("run"));
  EXPECT_THAT(FileRecorder::Create(dir.File("run")),
              StatusIs(ErrorCode::kInvalidArgument, Says("another run")));
  recorder->Record(RunEvent());
  ASSERT_THAT(recorder->Close(), IsOk());
  EXPECT_THAT(MustRead(dir.File("run")).completeness, IsOk());
}

TEST(RecordWriterTest, APathThatCannotBeWrittenIsSaidAtOnce) {
  const TempDir dir;
  EXPECT_THAT(FileRecorder::Create(dir.File("no/such/folder")),
              StatusIs(ErrorCode::kInvalidArgument, Says("No such file")));
  EXPECT_THAT(FileRecorder::Create(dir.path()),
              StatusIs(ErrorCode::kInvalidArgument, Says("directory")));
  EXPECT_THAT(FileRecorder::Create("/dev/full"),
              StatusIs(ErrorCode::kIoError, Says("No space left")));
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

// A pipe whose reader has gone takes nothing more.
TEST(RecordWriterTest, AfterAFailedWriteNothingIsKeptForTheNext) {
  const TempDir dir;
  const std::string pipe = dir.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  auto recorder = MustCreate(pipe);
  close(reader);
  RunArenaInfo info;
  info.name = std::string(1000, 'a');
  // The first goes to the write that fails; the others go nowhere.
  for (int i = 0; i < 10; ++i) {
    recorder->AddArena(info);
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (recorder->waiting() > Bytes(0)) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "kept for nobody";
      std::this_thread::yield();
    }
  }
  EXPECT_THAT(recorder->Close(),
              StatusIs(ErrorCode::kIoError, Says("stopped after 0 events")));
}

RunEvent Numbered(int64_t number) {
  RunEvent event;
  event.bytes = number;
  return event;
}

TEST(EventRingTest, GivesEventsBackInOrderOverManyRounds) {
  EventRing ring(4);
  int64_t pushed = 0;
  int64_t popped = 0;
  RunEvent event;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 1 + round % 4; ++i) {
      ASSERT_TRUE(ring.Push(Numbered(pushed++)));
    }
    while (ring.Pop(&event)) ASSERT_EQ(event.bytes, popped++);
  }
  EXPECT_EQ(popped, pushed);
  EXPECT_EQ(ring.pushed(), static_cast<uint64_t>(pushed));
  EXPECT_EQ(ring.popped(), static_cast<uint64_t>(popped));
}

TEST(EventRingTest, RefusesWhenFullAndKeepsWhatItHas) {
  EventRing ring(2);
  RunEvent event;
  EXPECT_FALSE(ring.Pop(&event));
  EXPECT_TRUE(ring.Push(Numbered(1)));
  EXPECT_TRUE(ring.Push(Numbered(2)));
  EXPECT_FALSE(ring.Push(Numbered(3)));
  ASSERT_TRUE(ring.Pop(&event));
  EXPECT_EQ(event.bytes, 1);
  EXPECT_TRUE(ring.Push(Numbered(4)));
  EXPECT_FALSE(ring.Push(Numbered(5)));
  ASSERT_TRUE(ring.Pop(&event));
  EXPECT_EQ(event.bytes, 2);
  ASSERT_TRUE(ring.Pop(&event));
  EXPECT_EQ(event.bytes, 4);
  EXPECT_FALSE(ring.Pop(&event));
}

TEST(EventRingDeathTest, WantsAPowerOfTwo) {
  EXPECT_DEATH(EventRing(3), "has_single_bit");
  EXPECT_DEATH(EventRing(1), "capacity");
}

TEST(EventRingTest, EveryEventOfEveryThreadComesOutOnceAndInItsOrder) {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 20'000;
  EventRing ring(64);
  std::vector<int64_t> refused(kThreads, 0);
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < kEach; ++i) {
        RunEvent event = Numbered(i);
        event.rank = t;
        event.begin_ns = event.end_ns = i * kThreads + t;
        if (!ring.Push(event)) {
          ++refused[static_cast<size_t>(t)];
          std::this_thread::yield();
        }
      }
      --running;
    });
  }
  std::vector<int64_t> last(kThreads, -1);
  std::vector<int64_t> got(kThreads, 0);
  RunEvent event;
  while (true) {
    const bool done = running == 0;
    while (ring.Pop(&event)) {
      const auto t = static_cast<size_t>(event.rank);
      ASSERT_GT(event.bytes, last[t]);
      ASSERT_EQ(event.begin_ns, event.bytes * kThreads + event.rank);
      last[t] = event.bytes;
      ++got[t];
    }
    if (done) break;
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < kThreads; ++t) {
    EXPECT_EQ(got[t] + refused[t], kEach);
    EXPECT_GT(got[t], 0);
  }
}

}  // namespace
}  // namespace castor
