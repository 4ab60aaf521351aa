// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the store says when the drive, the file or the caller misbehaves: every
// one of these ends in an error, none in wrong numbers or a hang.

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "offload/nvme/io_queue.h"
#include "offload/nvme/nvme_store.h"
#include "offload/nvme/thread_io_queue.h"
#include "offload/nvme/unique_fd.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/faulty_io_queue.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NvmeStoreFaultTest : public testing::Test {
 protected:
  NvmeStoreFaultTest()
      : faults_(std::make_shared<IoFaults>()), bytes_(MiB(1)), read_(MiB(1)) {
    FillRandom(bytes_.span(), 31);
    auto store = NvmeStore::Create(
        {.directory = dir_.path(),
         .size = MiB(4),
         .queue_for_test = MakeFaultyIoQueue(MakeThreadIoQueue({}), faults_)});
    EXPECT_THAT(store, IsOk());
    store_ = std::move(store).value();
  }

  Status Write() {
    return store_->Write(MiB(1), bytes_.span(), Event(), "spill of chunk 4")
        .Wait();
  }
  Status Read() {
    return store_->Read(MiB(1), read_.span(), Event(), "fetch of chunk 4")
        .Wait();
  }
  // The file as another program sees it.
  UniqueFd OpenBehindItsBack() {
    return UniqueFd(::open(store_->file().c_str(), O_RDWR | O_CLOEXEC));
  }

  TempDir dir_;
  std::shared_ptr<IoFaults> faults_;
  AlignedBytes bytes_, read_;
  std::unique_ptr<NvmeStore> store_;
};

TEST_F(NvmeStoreFaultTest, AFailedReadNamesWhatFileOffsetAndReason) {
  ASSERT_THAT(Write(), IsOk());
  faults_->Inject(IoDirection::kRead, 1, IoFault::kFail);
  EXPECT_THAT(
      Read(),
      StatusIs(ErrorCode::kIoError,
               AllOf(HasSubstr("fetch of chunk 4: read of 1048576 B at offset "
                               "1048576 of " +
                               store_->file().string()),
                     HasSubstr("Input/output error"))));
  // The bytes are still there.
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
  EXPECT_EQ(store_->stats().reads, 1);
}

TEST_F(NvmeStoreFaultTest, AfterAFailedWriteNothingIsReadUntilTheNext) {
  ASSERT_THAT(Write(), IsOk());
  faults_->Inject(IoDirection::kWrite, 2, IoFault::kFail);
  EXPECT_THAT(Write(), StatusIs(ErrorCode::kIoError,
                                HasSubstr("spill of chunk 4: write of")));
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss, HasSubstr("failed")));
  EXPECT_EQ(faults_->count(IoDirection::kRead), 0);
  EXPECT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
}

TEST_F(NvmeStoreFaultTest, BytesCorruptedOnTheWayBackAreNoticed) {
  ASSERT_THAT(Write(), IsOk());
  faults_->Inject(IoDirection::kRead, 1, IoFault::kCorrupt);
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss,
                               AllOf(HasSubstr("fetch of chunk 4"),
                                     HasSubstr(store_->file().string()))));
}

TEST_F(NvmeStoreFaultTest, BytesCorruptedOnTheWayToTheDriveAreNoticed) {
  faults_->Inject(IoDirection::kWrite, 1, IoFault::kCorrupt);
  ASSERT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss));
}

TEST_F(NvmeStoreFaultTest, ATransferThatLiesAboutItsLengthIsNoticed) {
  ASSERT_THAT(Write(), IsOk());
  faults_->Inject(IoDirection::kRead, 1, IoFault::kHalf);
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss));
  EXPECT_THAT(Read(), IsOk());
  faults_->Inject(IoDirection::kWrite, 2, IoFault::kHalf);
  FillRandom(bytes_.span(), 32);
  ASSERT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss));
}

TEST_F(NvmeStoreFaultTest, AByteChangedOnTheDriveIsNoticed) {
  ASSERT_THAT(Write(), IsOk());
  const UniqueFd file = OpenBehindItsBack();
  const std::byte wrong = bytes_.span()[12345] ^ std::byte{0x10};
  ASSERT_EQ(::pwrite(file.get(), &wrong, 1, (1 << 20) + 12345), 1);
  ASSERT_EQ(::fsync(file.get()), 0);
  EXPECT_THAT(
      Read(),
      StatusIs(ErrorCode::kDataLoss,
               AllOf(HasSubstr("fetch of chunk 4"), HasSubstr("offset 1048576"),
                     HasSubstr(store_->file().string()),
                     HasSubstr("not those that were written"))));
}

TEST_F(NvmeStoreFaultTest, ATruncatedFileIsNoticed) {
  ASSERT_THAT(Write(), IsOk());
  const UniqueFd file = OpenBehindItsBack();
  for (const int64_t end : {int64_t{3} << 19, int64_t{1600000}}) {
    ASSERT_EQ(::ftruncate(file.get(), end), 0);
    EXPECT_THAT(Read(),
                StatusIs(ErrorCode::kIoError,
                         AllOf(HasSubstr("fetch of chunk 4"),
                               HasSubstr("ends at " + std::to_string(end)))));
  }
}

TEST_F(NvmeStoreFaultTest, AVanishedFileOrDirectoryHurtsNobody) {
  ASSERT_THAT(Write(), IsOk());
  std::filesystem::remove(store_->file());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
  std::filesystem::remove_all(store_->file().parent_path());
  EXPECT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_THAT(store_->Close(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(NvmeStoreFaultTest, CloseReportsAFileThatCannotBeRemoved) {
  // A mount point, an immutable file: here, a folder that vanishes and comes
  // back as a file.
  const auto directory = store_->file().parent_path();
  std::filesystem::remove_all(directory);
  ASSERT_GE(
      UniqueFd(::open(directory.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600))
          .get(),
      0);
  EXPECT_THAT(store_->Close(),
              StatusIs(ErrorCode::kUnavailable, HasSubstr(directory.string())));
}

TEST_F(NvmeStoreFaultTest, TransfersThatNoEventOrdersAreRefused) {
  ASSERT_THAT(Write(), IsOk());
  faults_->Hold();
  const Event write =
      store_->Write(MiB(1), bytes_.span(), Event(), "first write");
  EXPECT_FALSE(write.done());
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kFailedPrecondition,
                               HasSubstr("being written")));
  EXPECT_THAT(Write(), StatusIs(ErrorCode::kFailedPrecondition));
  faults_->Release();
  EXPECT_THAT(write.Wait(), IsOk());

  faults_->Hold();
  const Event read = store_->Read(MiB(1), read_.span(), Event(), "first read");
  EXPECT_THAT(Write(), StatusIs(ErrorCode::kFailedPrecondition,
                                HasSubstr("being read")));
  faults_->Release();
  EXPECT_THAT(read.Wait(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
}

TEST_F(NvmeStoreFaultTest, CloseWaitsForADriveThatIsSlow) {
  faults_->Hold();
  const Event slow = store_->Write(MiB(1), bytes_.span(), Event(), "slow");
  auto closed = std::async(std::launch::async, [&] { return store_->Close(); });
  EXPECT_FALSE(slow.done());
  EXPECT_TRUE(std::filesystem::exists(store_->file()));
  faults_->Release();
  EXPECT_THAT(closed.get(), IsOk());
  ASSERT_TRUE(slow.done());
  EXPECT_THAT(slow.status(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(NvmeStoreFaultTest, OneFailureOfManyFailsThatOneAlone) {
  faults_->Inject(IoDirection::kWrite, 3, IoFault::kFail);
  std::vector<Event> events;
  for (int i = 0; i < 8; ++i) {
    events.push_back(store_->Write(KiB(64) * i,
                                   bytes_.part(KiB(64) * i, KiB(64)), Event(),
                                   "w" + std::to_string(i)));
  }
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].Wait().ok(), i != 2) << i;
  }
}

}  // namespace
}  // namespace castor
