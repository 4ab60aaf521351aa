// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/log.h"
#include "gtest/gtest.h"
#include "offload/nvme/queue/thread_io_queue.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/temp_dir.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

const std::vector<Bytes> kSizes = {KiB(4), KiB(16), KiB(64)};

class NvmeTimingTest : public testing::Test {
 protected:
  std::unique_ptr<NvmeStore> Open() {
    NvmeStoreOptions options;
    options.drives = {{.directory = dir_.path(), .size = KiB(768)}};
    options.log = &log_;
    options.make_queue = queue_;
    auto store = NvmeStore::Create(std::move(options));
    CASTOR_CHECK(store.ok());
    return std::move(store).value();
  }
  Result<NvmeTimes> Time(const RoundOptions& options) {
    return TimeNvme(Open(), KiB(256), KiB(128), kSizes, options);
  }

  const TempDir dir_;
  Log log_{[](LogLevel, std::string_view) {}};
  std::function<std::unique_ptr<IoQueue>(size_t)> queue_ = nullptr;
};

TEST_F(NvmeTimingTest, TimesReadsWritesAndBoth) {
  const Result<NvmeTimes> times = Time({.seconds = 0.02});
  ASSERT_TRUE(times.ok()) << times.status();
  for (const auto* mix : {&times->read, &times->write, &times->mixed}) {
    ASSERT_EQ(mix->size(), kSizes.size());
    for (size_t i = 0; i < kSizes.size(); ++i) {
      EXPECT_EQ((*mix)[i].bytes, kSizes[i]);
      EXPECT_GT((*mix)[i].seconds, 0);
      EXPECT_GE((*mix)[i].samples, 1);
    }
  }
  // The first pass writes all three regions, each sample moves one.
  EXPECT_GE(times->stats.bytes_written, KiB(256) * 3 + KiB(128) * 3);
  EXPECT_GE(times->stats.bytes_read, KiB(256) * 3 + KiB(128) * 3);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(NvmeTimingTest, ADriveThatGivesWrongBytesIsFoundOut) {
  const auto faults = std::make_shared<IoFaults>();
  faults->Inject(IoDirection::kRead, 30, IoFault::kCorrupt);
  queue_ = [faults](size_t) {
    return MakeFaultyIoQueue(MakeThreadIoQueue({}), faults);
  };
  EXPECT_EQ(Time({.seconds = 0.02}).status().code(), ErrorCode::kDataLoss);
  faults->Inject(IoDirection::kWrite, faults->count(IoDirection::kWrite) + 9,
                 IoFault::kFail);
  EXPECT_EQ(Time({.seconds = 0.02}).status().code(), ErrorCode::kIoError);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(NvmeTimingTest, LeavesNothingWhereItIsStopped) {
  int left = 2;
  RoundOptions options;
  options.stop = [&left] { return left-- == 0; };
  EXPECT_EQ(Time(options).status().code(), ErrorCode::kStoppedEarly);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  left = 5;
  EXPECT_EQ(Time(options).status().code(), ErrorCode::kStoppedEarly);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

}  // namespace
}  // namespace castor
