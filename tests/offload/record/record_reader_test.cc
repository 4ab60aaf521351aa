// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/record_reader.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/record/record_format.h"
#include "offload/record/record_writer.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

constexpr int kRanks = 2;

struct Sample {
  std::vector<RunEvent> events;
  std::vector<size_t> frame_ends;  // in bytes; the first is the header's
  std::string bytes;
};

// Two ranks, an arena, their plans, 20 events in frames of 1 to 7, 4 dropped.
Sample MakeSample(uint64_t seed) {
  std::mt19937_64 random(seed);
  Sample sample;
  sample.events = RandomEvents(random, 20);
  const auto mark = [&] { sample.frame_ends.push_back(sample.bytes.size()); };
  AppendRecordHeader(&sample.bytes);
  mark();
  for (int rank = 0; rank < kRanks; ++rank) {
    AppendRankFrame(SomeRank(rank, kRanks, 3), &sample.bytes);
    mark();
  }
  AppendArenaFrame(SomeArena(0, "staging"), &sample.bytes);
  mark();
  for (const int32_t rank : {1, 0, 1}) {
    AppendPlanFrame(SomePlan(rank), &sample.bytes);
    mark();
  }
  for (size_t at = 0; at < sample.events.size();) {
    const size_t n =
        std::min<size_t>(1 + random() % 7, sample.events.size() - at);
    AppendEventsFrame(std::span(sample.events).subspan(at, n), 3,
                      &sample.bytes);
    at += n;
    mark();
  }
  AppendEndFrame({kRanks, 20, 4}, &sample.bytes);
  mark();
  return sample;
}

bool IsPrefix(const std::vector<RunEvent>& part,
              const std::vector<RunEvent>& whole) {
  return part.size() <= whole.size() &&
         std::equal(part.begin(), part.end(), whole.begin());
}

TEST(RecordReaderTest, ReadsAWholeRecord) {
  const Sample sample = MakeSample(1);
  ASSERT_OK_AND_ASSIGN(const RunRecord record, ParseRecord(sample.bytes));
  EXPECT_THAT(record.completeness, IsOk());
  EXPECT_EQ(record.events, sample.events);
  EXPECT_EQ(record.dropped, 4);
  EXPECT_EQ(record.file_bytes, static_cast<int64_t>(sample.bytes.size()));
  ASSERT_EQ(record.ranks.size(), 2u);
  EXPECT_EQ(record.ranks[1].rank, 1);
  EXPECT_EQ(record.ranks[1].chunks[2].params, "h.2.attn");
  EXPECT_EQ(record.arenas, std::vector{SomeArena(0, "staging")});
  EXPECT_EQ(record.plans, (std::vector{SomePlan(0), SomePlan(1)}));
}

TEST(RecordReaderTest, MoreArenasThanAnyRunHasEndTheReading) {
  std::string bytes;
  AppendRecordHeader(&bytes);
  for (int i = 0; i <= 1 << 14; ++i) {
    AppendArenaFrame(SomeArena(i, ""), &bytes);
  }
  ASSERT_OK_AND_ASSIGN(const RunRecord record, ParseRecord(bytes));
  EXPECT_THAT(record.completeness,
              StatusIs(ErrorCode::kStoppedEarly, Says("no run has")));
}

TEST(RecordReaderTest, CutOffAnywhereItHoldsThePrefixBeforeTheCut) {
  const uint64_t seed = TestSeed(2);
  const Sample sample = MakeSample(seed);
  size_t seen = 0;
  for (size_t size = 0; size < sample.bytes.size(); ++size) {
    const Result<RunRecord> record =
        ParseRecord(std::string_view(sample.bytes).substr(0, size));
    if (size < kRecordHeaderBytes) {
      EXPECT_THAT(record, StatusIs(ErrorCode::kMalformed)) << size;
      continue;
    }
    ASSERT_THAT(record, IsOk()) << size;
    EXPECT_THAT(record->completeness, StatusIs(ErrorCode::kStoppedEarly));
    // The message names where the first frame begins that is not whole.
    const auto end = std::upper_bound(sample.frame_ends.begin(),
                                      sample.frame_ends.end(), size);
    EXPECT_THAT(record->completeness.message(),
                Says("up to byte " + std::to_string(*(end - 1)) + " only"));
    EXPECT_TRUE(IsPrefix(record->events, sample.events)) << size;
    EXPECT_GE(record->events.size(), seen) << size;
    seen = record->events.size();
    EXPECT_EQ(record->file_bytes, static_cast<int64_t>(size));
  }
  EXPECT_EQ(seen, sample.events.size());
}

TEST(RecordReaderTest, DamagedAnywhereItHoldsAPrefixAndSaysSo) {
  const uint64_t seed = TestSeed(3);
  std::mt19937_64 random(seed);
  const Sample sample = MakeSample(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = sample.bytes;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int change = 0; change < changes; ++change) {
      char& byte = bytes[random() % bytes.size()];
      byte = static_cast<char>(random());
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    if (random() % 8 == 0) bytes.append(random() % 40, '\0');
    const Result<RunRecord> record = ParseRecord(bytes);
    if (!record.ok()) {
      EXPECT_EQ(record.status().code(), ErrorCode::kMalformed);
      continue;
    }
    ASSERT_TRUE(IsPrefix(record->events, sample.events)) << "round " << i;
    if (bytes != sample.bytes) {
      ASSERT_FALSE(record->completeness.ok()) << "round " << i;
    }
  }
}

TEST(RecordReaderTest, RandomBytesAfterAGoodHeaderGiveNothing) {
  std::mt19937_64 random(TestSeed(4));
  for (int i = 0; i < 2'000; ++i) {
    std::string bytes;
    AppendRecordHeader(&bytes);
    const size_t size = 1 + random() % 200;
    for (size_t k = 0; k < size; ++k) {
      bytes.push_back(static_cast<char>(random() % (i % 2 == 0 ? 256 : 4)));
    }
    ASSERT_OK_AND_ASSIGN(const RunRecord record, ParseRecord(bytes));
    EXPECT_TRUE(record.events.empty());
    EXPECT_FALSE(record.completeness.ok());
  }
}

TEST(RecordReaderTest, FramesOfUnknownTypeAreSkipped) {
  std::string bytes;
  AppendRecordHeader(&bytes);
  // No encoder writes type 9, so the checksum is the specification's:
  // XXH3-64 of an empty payload with seed 9 * 2^32.
  const std::string unknown(
      "\x09\0\0\0\0\0\0\0"
      "\x49\x27\xc8\xf2\xef\x55\x37\x5b",
      16);
  bytes += unknown;
  AppendEndFrame({0, 0, 0}, &bytes);
  ASSERT_OK_AND_ASSIGN(const RunRecord record, ParseRecord(bytes));
  EXPECT_THAT(record.completeness, IsOk());
}

TEST(RecordReaderTest, AnEndThatPromisesMoreIsSaid) {
  const RunEvent event;
  std::string bytes;
  AppendRecordHeader(&bytes);
  AppendEventsFrame(std::span(&event, 1), 0, &bytes);
  AppendEndFrame({0, 2, 0}, &bytes);
  ASSERT_OK_AND_ASSIGN(const RunRecord record, ParseRecord(bytes));
  EXPECT_EQ(record.events.size(), 1u);
  EXPECT_THAT(record.completeness.message(), Says("2 events"));
}

TEST(RecordReaderTest, BytesAfterTheEndAreSaid) {
  Sample sample = MakeSample(5);
  sample.bytes += '\0';
  ASSERT_OK_AND_ASSIGN(const RunRecord record, ParseRecord(sample.bytes));
  EXPECT_EQ(record.events, sample.events);
  EXPECT_THAT(record.completeness.message(), Says("follow the end"));
}

TEST(RecordReaderTest, SumsThatNoRunReachesEndTheReading) {
  RunEvent event;
  event.kind = RunEventKind::kTransfer;
  event.bytes = int64_t{1} << 60;
  std::vector<RunEvent> events(3, event);
  std::string bytes;
  AppendRecordHeader(&bytes);
  for (int frame = 0; frame < 3; ++frame) {
    AppendEventsFrame(events, 0, &bytes);
  }
  ASSERT_OK_AND_ASSIGN(const RunRecord record, ParseRecord(bytes));
  EXPECT_EQ(record.events.size(), 3u);
  EXPECT_THAT(record.completeness.message(), Says("no run has"));
}

TEST(RecordReaderTest, TimesThatNoRunSpansEndTheReading) {
  RunEvent event;
  event.begin_ns = event.end_ns = -(int64_t{1} << 60);
  std::string bytes;
  AppendRecordHeader(&bytes);
  AppendEventsFrame(std::span(&event, 1), 0, &bytes);
  event.begin_ns = event.end_ns = int64_t{1} << 60;
  AppendEventsFrame(std::span(&event, 1), 0, &bytes);
  event.rank = 1;
  AppendEventsFrame(std::span(&event, 1), 0, &bytes);
  event.rank = 2;
  AppendEventsFrame(std::span(&event, 1), 0, &bytes);
  ASSERT_OK_AND_ASSIGN(const RunRecord record, ParseRecord(bytes));
  EXPECT_EQ(record.events.size(), 3u);
  EXPECT_THAT(record.completeness.message(), Says("no run has"));
}

TEST(RecordReaderTest, ReadsFilesAndExplainsWhatIsNone) {
  const TempDir dir;
  EXPECT_THAT(ReadRecord(dir.File("missing")),
              StatusIs(ErrorCode::kInvalidArgument, Says("No such file")));
  EXPECT_THAT(ReadRecord(dir.path()),
              StatusIs(ErrorCode::kInvalidArgument, Says("directory")));
  const Sample sample = MakeSample(6);
  std::ofstream(dir.File("run"), std::ios::binary) << sample.bytes;
  ASSERT_OK_AND_ASSIGN(const RunRecord record, ReadRecord(dir.File("run")));
  EXPECT_EQ(record.events, sample.events);
  std::ofstream(dir.File("empty")).flush();
  EXPECT_THAT(ReadRecord(dir.File("empty")), StatusIs(ErrorCode::kMalformed));
}

// What a recorder does when its disk is full.

// Records more than fits, and checks that only the record suffers.
void RecordTooMuch(const std::string& path, const std::string& reason) {
  FileRecorderOptions options;
  options.interval = std::chrono::milliseconds(1);
  ASSERT_OK_AND_ASSIGN(auto recorder, FileRecorder::Create(path, options));
  recorder->AddRank(SomeRank(0, 1, 2));
  for (int64_t i = 0; i < 20'000; ++i) {
    RunEvent event;
    event.bytes = i;
    recorder->Record(event);
    if (i % 1000 == 0) std::this_thread::sleep_for(options.interval);
  }
  const Status closed = recorder->Close();
  EXPECT_THAT(closed, StatusIs(ErrorCode::kIoError, Says(reason)));
  EXPECT_EQ(recorder->Close().message(), closed.message());

  ASSERT_OK_AND_ASSIGN(const RunRecord record, ReadRecord(path));
  EXPECT_THAT(record.completeness, StatusIs(ErrorCode::kStoppedEarly));
  EXPECT_GT(record.events.size(), 100u);
  EXPECT_LT(record.events.size(), 20'000u);
  EXPECT_EQ(static_cast<int64_t>(record.events.size()),
            recorder->totals().events);
  for (size_t i = 0; i < record.events.size(); ++i) {
    EXPECT_EQ(record.events[i].bytes, static_cast<int64_t>(i));
  }
}

TEST(RecordWriterFullDiskTest, AFullFileSystemStopsTheRecordNotTheRun) {
  const TempDir dir;
  RunWithPrivateMount({.type = "tmpfs", .options = "size=64k"}, dir.path(),
                      [&] { RecordTooMuch(dir.File("run"), "No space left"); });
}

// Without care the kernel would end the process by SIGXFSZ.
TEST(RecordWriterFullDiskTest, ALimitOnFileSizesDoesNotKillTheRun) {
  const TempDir dir;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 64 << 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  RecordTooMuch(dir.File("run"), "File too large");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

}  // namespace
}  // namespace castor
