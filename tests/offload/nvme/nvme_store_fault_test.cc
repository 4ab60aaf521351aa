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

// Chunk 4 meets the fault; chunks 3 and 5, before and behind it, must not.
class NvmeStoreFaultTest : public testing::Test {
 protected:
  explicit NvmeStoreFaultTest(int drives = 1)
      : faults_(std::make_shared<IoFaults>()), bytes_(MiB(1)), read_(MiB(1)) {
    FillRandom(bytes_.span(), 31);
    NvmeStoreOptions options{.drives = {},
                             // A chunk on two drives has a piece on each.
                             .stripe = drives == 1 ? MiB(1) : KiB(512),
                             .make_queue = [this](size_t) {
                               return MakeFaultyIoQueue(MakeThreadIoQueue({}),
                                                        faults_);
                             }};
    for (int i = 0; i < drives; ++i) {
      const auto directory = dir_.path() / std::to_string(i);
      std::filesystem::create_directory(directory);
      options.drives.push_back({directory, MiB(4) / drives});
    }
    auto store = NvmeStore::Create(std::move(options));
    EXPECT_THAT(store, IsOk());
    store_ = std::move(store).value();
    for (const int chunk : {3, 5}) {
      EXPECT_THAT(
          store_->Write(At(chunk), Other(chunk).span(), Event(), "o").Wait(),
          IsOk());
    }
  }

  void TearDown() override {
    for (const int chunk : intact_) {
      EXPECT_THAT(store_->Read(At(chunk), read_.span(), Event(), "o").Wait(),
                  IsOk());
      EXPECT_TRUE(SameBytes(read_.span(), Other(chunk).span()))
          << "chunk " << chunk << " was hurt";
    }
  }

  static Bytes At(int chunk) { return MiB(1) * (chunk - 3); }
  static AlignedBytes Other(int chunk) {
    AlignedBytes bytes(MiB(1));
    FillRandom(bytes.span(), static_cast<uint64_t>(chunk));
    return bytes;
  }

  // The nth from now on.
  void Inject(IoDirection direction, int64_t nth, IoFault fault) {
    faults_->Inject(direction, faults_->count(direction) + nth, fault);
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
  UniqueFd OpenBehindItsBack(size_t drive = 0) {
    return UniqueFd(::open(store_->file(drive).c_str(), O_RDWR | O_CLOEXEC));
  }
  // Changes a byte of a drive's file.
  void Corrupt(size_t drive, int64_t offset) {
    const UniqueFd file = OpenBehindItsBack(drive);
    std::byte byte{};
    ASSERT_EQ(::pread(file.get(), &byte, 1, offset), 1);
    byte ^= std::byte{0x10};
    ASSERT_EQ(::pwrite(file.get(), &byte, 1, offset), 1);
    ASSERT_EQ(::fsync(file.get()), 0);
  }
  bool NothingIsLeft() const {
    return std::filesystem::is_empty(dir_.path() / "0");
  }

  TempDir dir_;
  std::shared_ptr<IoFaults> faults_;
  AlignedBytes bytes_, read_;
  std::unique_ptr<NvmeStore> store_;
  std::vector<int> intact_ = {3, 5};  // to be looked at in the end
};

TEST_F(NvmeStoreFaultTest, AFailedReadNamesWhatFileOffsetAndReason) {
  ASSERT_THAT(Write(), IsOk());
  Inject(IoDirection::kRead, 1, IoFault::kFail);
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
  Inject(IoDirection::kWrite, 1, IoFault::kFail);
  EXPECT_THAT(Write(), StatusIs(ErrorCode::kIoError,
                                HasSubstr("spill of chunk 4: write of")));
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss, HasSubstr("failed")));
  EXPECT_EQ(faults_->count(IoDirection::kRead), 0) << "nothing to read";
  EXPECT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
}

TEST_F(NvmeStoreFaultTest, BytesCorruptedOnTheWayBackAreNoticed) {
  ASSERT_THAT(Write(), IsOk());
  Inject(IoDirection::kRead, 1, IoFault::kCorrupt);
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss,
                               AllOf(HasSubstr("fetch of chunk 4"),
                                     HasSubstr(store_->file().string()))));
}

TEST_F(NvmeStoreFaultTest, BytesCorruptedOnTheWayToTheDriveAreNoticed) {
  Inject(IoDirection::kWrite, 1, IoFault::kCorrupt);
  ASSERT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss));
}

TEST_F(NvmeStoreFaultTest, ATransferThatLiesAboutItsLengthIsNoticed) {
  ASSERT_THAT(Write(), IsOk());
  Inject(IoDirection::kRead, 1, IoFault::kHalf);
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss));
  EXPECT_THAT(Read(), IsOk());
  Inject(IoDirection::kWrite, 1, IoFault::kHalf);
  FillRandom(bytes_.span(), 32);
  ASSERT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss));
}

TEST_F(NvmeStoreFaultTest, AByteChangedOnTheDriveIsNoticed) {
  ASSERT_THAT(Write(), IsOk());
  Corrupt(0, (1 << 20) + 12345);
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
  intact_ = {3};  // the other was cut off too
}

TEST_F(NvmeStoreFaultTest, AVanishedFileOrDirectoryHurtsNobody) {
  ASSERT_THAT(Write(), IsOk());
  std::filesystem::remove(store_->file());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
  std::filesystem::remove_all(store_->file().parent_path());
  EXPECT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), IsOk());
  TearDown();
  intact_ = {};
  EXPECT_THAT(store_->Close(), IsOk());
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(NvmeStoreFaultTest, CloseReportsAFileThatCannotBeRemoved) {
  intact_ = {};
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
  intact_ = {};
  faults_->Hold();
  const Event slow = store_->Write(MiB(1), bytes_.span(), Event(), "slow");
  auto closed = std::async(std::launch::async, [&] { return store_->Close(); });
  EXPECT_FALSE(slow.done());
  EXPECT_TRUE(std::filesystem::exists(store_->file()));
  faults_->Release();
  EXPECT_THAT(closed.get(), IsOk());
  ASSERT_TRUE(slow.done());
  EXPECT_THAT(slow.status(), IsOk());
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(NvmeStoreFaultTest, OneFailureOfManyFailsThatOneAlone) {
  Inject(IoDirection::kWrite, 3, IoFault::kFail);
  std::vector<Event> events;
  for (int i = 0; i < 8; ++i) {
    events.push_back(store_->Write(MiB(1) + KiB(64) * i,
                                   bytes_.part(KiB(64) * i, KiB(64)), Event(),
                                   "w" + std::to_string(i)));
  }
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].Wait().ok(), i != 2) << i;
  }
}

// The same on two drives: which of them it was is said.
class TwoDrivesFaultTest : public NvmeStoreFaultTest {
 protected:
  TwoDrivesFaultTest() : NvmeStoreFaultTest(2) {}
};

TEST_F(TwoDrivesFaultTest, AFailureNamesChunkFileAndOffset) {
  ASSERT_THAT(Write(), IsOk());
  // The file ends before the second half of chunk 4, and of chunk 5.
  const UniqueFd file = OpenBehindItsBack(1);
  ASSERT_EQ(::ftruncate(file.get(), 1 << 19), 0);
  intact_ = {3};
  EXPECT_THAT(
      Read(),
      StatusIs(ErrorCode::kIoError,
               AllOf(HasSubstr("fetch of chunk 4: read of 1048576 B at offset "
                               "1048576 of 2 drives"),
                     HasSubstr(store_->file(1).string() + ": reading 524288 B "
                                                          "at offset 524288"),
                     HasSubstr("ends at 524288 B"))));
}

TEST_F(TwoDrivesFaultTest, ACorruptedPieceNamesItsDrive) {
  ASSERT_THAT(Write(), IsOk());
  Corrupt(1, (1 << 19) + 777);
  EXPECT_THAT(
      Read(),
      StatusIs(ErrorCode::kDataLoss,
               AllOf(HasSubstr("fetch of chunk 4"),
                     HasSubstr("offset 524288 of " + store_->file(1).string()),
                     HasSubstr("not those that were written"))));
}

TEST_F(TwoDrivesFaultTest, APieceThatFailsFailsTheWholeWrite) {
  ASSERT_THAT(Write(), IsOk());
  for (const int64_t piece : {1, 2}) {
    Inject(IoDirection::kWrite, piece, IoFault::kFail);
    EXPECT_THAT(Write(),
                StatusIs(ErrorCode::kIoError, HasSubstr("spill of chunk 4")));
    EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss, HasSubstr("failed")));
  }
  EXPECT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
}

TEST_F(TwoDrivesFaultTest, ADriveWhoseFileVanishesHurtsNobody) {
  ASSERT_THAT(Write(), IsOk());
  std::filesystem::remove_all(store_->file(1).parent_path());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
  TearDown();
  intact_ = {};
  EXPECT_THAT(store_->Close(), IsOk());
}

}  // namespace
}  // namespace castor
