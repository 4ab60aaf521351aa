// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the store says when the drive, the file or the caller misbehaves: every
// one of these ends in an error, none in wrong numbers or a hang.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/thread_io_queue.h"
#include "offload/nvme/queue/unique_fd.h"
#include "offload/nvme/store/nvme_store.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/without_uring.h"

namespace castor {
namespace {

using testing::ElementsAre;

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
  EXPECT_THAT(Read(),
              StatusIs(ErrorCode::kIoError,
                       Says("fetch of chunk 4: read of 1048576 B at offset "
                            "1048576 of " +
                                store_->file().string(),
                            "Input/output error")));
  // The bytes are still there.
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
  EXPECT_EQ(store_->stats().reads, 1);
}

TEST_F(NvmeStoreFaultTest, AfterAFailedWriteNothingIsReadUntilTheNext) {
  ASSERT_THAT(Write(), IsOk());
  Inject(IoDirection::kWrite, 1, IoFault::kFail);
  EXPECT_THAT(Write(), StatusIs(ErrorCode::kIoError,
                                Says("spill of chunk 4: write of")));
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss, Says("failed")));
  EXPECT_EQ(faults_->count(IoDirection::kRead), 0) << "nothing to read";
  EXPECT_THAT(Write(), IsOk());
  EXPECT_THAT(Read(), IsOk());
  EXPECT_TRUE(SameBytes(read_.span(), bytes_.span()));
}

TEST_F(NvmeStoreFaultTest, BytesCorruptedOnTheWayBackAreNoticed) {
  ASSERT_THAT(Write(), IsOk());
  Inject(IoDirection::kRead, 1, IoFault::kCorrupt);
  EXPECT_THAT(Read(),
              StatusIs(ErrorCode::kDataLoss,
                       Says("fetch of chunk 4", store_->file().string())));
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
  EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss,
                               Says("fetch of chunk 4", "offset 1048576",
                                    store_->file().string(),
                                    "not those that were written")));
}

TEST_F(NvmeStoreFaultTest, ATruncatedFileIsNoticed) {
  ASSERT_THAT(Write(), IsOk());
  const UniqueFd file = OpenBehindItsBack();
  for (const int64_t end : {int64_t{3} << 19, int64_t{1600000}}) {
    ASSERT_EQ(::ftruncate(file.get(), end), 0);
    EXPECT_THAT(Read(), StatusIs(ErrorCode::kIoError,
                                 Says("fetch of chunk 4",
                                      "ends at " + std::to_string(end))));
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
              StatusIs(ErrorCode::kUnavailable, Says(directory.string())));
}

TEST_F(NvmeStoreFaultTest, TransfersThatNoEventOrdersAreRefused) {
  ASSERT_THAT(Write(), IsOk());
  faults_->Hold();
  const Event write =
      store_->Write(MiB(1), bytes_.span(), Event(), "first write");
  EXPECT_FALSE(write.done());
  EXPECT_THAT(Read(),
              StatusIs(ErrorCode::kFailedPrecondition, Says("being written")));
  EXPECT_THAT(Write(), StatusIs(ErrorCode::kFailedPrecondition));
  faults_->Release();
  EXPECT_THAT(write.Wait(), IsOk());

  faults_->Hold();
  const Event read = store_->Read(MiB(1), read_.span(), Event(), "first read");
  EXPECT_THAT(Write(),
              StatusIs(ErrorCode::kFailedPrecondition, Says("being read")));
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
  EXPECT_THAT(Read(),
              StatusIs(ErrorCode::kIoError,
                       Says("fetch of chunk 4: read of 1048576 B at offset "
                            "1048576 of 2 drives",
                            store_->file(1).string() + ": reading 524288 B "
                                                       "at offset 524288",
                            "ends at 524288 B")));
}

TEST_F(TwoDrivesFaultTest, ACorruptedPieceNamesItsDrive) {
  ASSERT_THAT(Write(), IsOk());
  Corrupt(1, (1 << 19) + 777);
  EXPECT_THAT(Read(),
              StatusIs(ErrorCode::kDataLoss,
                       Says("fetch of chunk 4",
                            "offset 524288 of " + store_->file(1).string(),
                            "not those that were written")));
}

TEST_F(TwoDrivesFaultTest, APieceThatFailsFailsTheWholeWrite) {
  ASSERT_THAT(Write(), IsOk());
  for (const int64_t piece : {1, 2}) {
    Inject(IoDirection::kWrite, piece, IoFault::kFail);
    EXPECT_THAT(Write(),
                StatusIs(ErrorCode::kIoError, Says("spill of chunk 4")));
    EXPECT_THAT(Read(), StatusIs(ErrorCode::kDataLoss, Says("failed")));
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

// Stores on machines that refuse what makes them fast: each works, and says
// once what it does without. (O_DIRECT: nvme_store_process_test.cc.)

class NvmeStoreFallbackTest : public testing::Test {
 protected:
  // A store as one of several ranks makes it, with its slab, which comes back
  // with what was written: how that ended.
  Status UseAStore(NvmeStoreStats* stats) {
    AlignedBytes slab(MiB(4)), copy(MiB(4));
    auto store =
        NvmeStore::Create({.drives = {{dir_.path(), MiB(4)}}, .log = &log_});
    if (!store.ok()) return store.status();
    (*store)->RegisterMemory(slab.span());
    FillRandom(slab.span(), 1);
    FillRandom(copy.span(), 1);
    CASTOR_RETURN_IF_ERROR(
        (*store)->Write(Bytes(0), slab.span(), Event(), "w").Wait());
    FillRandom(slab.span(), 2);
    CASTOR_RETURN_IF_ERROR(
        (*store)->Read(Bytes(0), slab.span(), Event(), "r").Wait());
    *stats = (*store)->stats();
    return SameBytes(slab.span(), copy.span()) ? OkStatus()
                                               : DataLoss("other bytes");
  }

  TempDir dir_;
  std::vector<std::string> said_;
  Log log_{
      [this](LogLevel, std::string_view line) { said_.emplace_back(line); }};
};

TEST_F(NvmeStoreFallbackTest, WithoutIoUringThreadsMoveTheBytes) {
  NvmeStoreStats stats;
  std::vector<Status> ended;
  const bool filtered = WithoutUring(ENOSYS, [&] {
    for (int rank = 0; rank < 2; ++rank) ended.push_back(UseAStore(&stats));
  });
  if (!filtered) GTEST_SKIP() << "the kernel allows no seccomp filter";
  EXPECT_THAT(ended, ElementsAre(IsOk(), IsOk()));
  EXPECT_EQ(stats.queue, "threads");
  EXPECT_THAT(said_,
              ElementsAre(Says("2 blocking threads", "Function not implemented",
                               "Linux 5.6")));
}

TEST_F(NvmeStoreFallbackTest, BelowTheMemlockLimitMemoryIsNotRegistered) {
  NvmeStoreStats stats;
  std::vector<Status> ended;
  const bool limited = WithMemlockLimit(64 << 10, [&] {
    for (int rank = 0; rank < 2; ++rank) ended.push_back(UseAStore(&stats));
  });
  if (!limited) GTEST_SKIP() << "the limit of locked memory cannot be set";
  EXPECT_THAT(ended, ElementsAre(IsOk(), IsOk()));
  EXPECT_EQ(stats.drives[0].registered, Bytes(0));
  if (stats.queue != "io_uring") GTEST_SKIP() << "no io_uring here";
  EXPECT_THAT(said_,
              ElementsAre(Says("pin their memory each time", "ulimit -l")));
}

TEST_F(NvmeStoreFallbackTest, WhereNothingIsRefusedNothingIsSaid) {
  NvmeStoreStats stats;
  ASSERT_THAT(UseAStore(&stats), IsOk());
  if (stats.queue != "io_uring" || !stats.direct) {
    GTEST_SKIP() << "this machine refuses something";
  }
  EXPECT_THAT(said_, testing::IsEmpty());
  EXPECT_EQ(stats.drives[0].registered, MiB(4));
}

}  // namespace
}  // namespace castor
