// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Saves to drives that take long or fail: who waits for them, and what a
// failure leaves.

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/checkpoint/files/data_file.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// More than anything here takes, so that a wait for a drive that waits for the
// waiter fails instead of hanging.
constexpr std::chrono::seconds kLong{30};

// A drive that puts nothing on itself until it is released.
class HeldDrive {
 public:
  int Sync(int file) {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(lock, kLong, [this] { return released_; })) {
      gave_up_ = released_ = true;
    }
    lock.unlock();
    return ::fsync(file);
  }
  bool WaitUntilReached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [this] { return reached_; });
  }
  void Release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  bool gave_up() const {
    std::lock_guard lock(mutex_);
    return gave_up_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool released_ = false;
  bool gave_up_ = false;
};

std::string PathOf(int file) {
  std::error_code error;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(file), error)
      .string();
}

class SaveDriveTest : public OneRankEngineTest {
 protected:
  // The engine's lanes have one thread among them.
  void Open() {
    ZeroOptions options = Roomy(3);
    options.executor = &one_;
    OneRankEngineTest::Open(options, 3);
    ASSERT_THAT(engine_->Seal({}), IsOk());
    Train();
  }
  void Train() {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    Backward({0, 1, 2});
    ASSERT_THAT(engine_->Step(0.1), IsOk());
  }
  void TearDown() override { engine_.reset(); }

  ThreadPool one_{1};
  TempDir dir_;
  const std::string run_ = dir_.File("run");
};

TEST_F(SaveDriveTest, StepsGoOnWhileTheDriveHoldsASave) {
  Open();
  HeldDrive drive;
  const ScopedDataFileCalls calls(
      {.fsync = [&](int file) { return drive.Sync(file); }});
  // Whoever makes the folder waits for it.
  fs::create_directory(run_);
  ASSERT_THAT(engine_->Save({.directory = run_, .wait = false}), IsOk());
  ASSERT_TRUE(drive.WaitUntilReached());
  for (int i = 0; i < 8; ++i) Train();
  EXPECT_FALSE(drive.gave_up()) << "a step waited for the drive";
  EXPECT_THAT(*ListCheckpoints(run_), IsEmpty());
  drive.Release();
  ASSERT_THAT(engine_->FinishSave(), IsOk());
  ASSERT_THAT(*ListCheckpoints(run_), SizeIs(1));
  const LoadResult loaded = *engine_->Load({.directory = run_});
  EXPECT_EQ(loaded.step, 1);
}

// Nobody has to ask for the end of a save.
TEST_F(SaveDriveTest, StepsBringASaveToItsEnd) {
  Open();
  ASSERT_THAT(engine_->Save({.directory = run_, .wait = false}), IsOk());
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (ListCheckpoints(run_)->empty() &&
         std::chrono::steady_clock::now() < end) {
    Train();
  }
  EXPECT_THAT(*ListCheckpoints(run_), SizeIs(1));
  EXPECT_THAT(engine_->FinishSave(), IsOk());
}

TEST_F(SaveDriveTest, RanksTrainOnWhileTheDriveHoldsASave) {
  const ToyModel model = MakeToyModel(78, 6, 700, DType::kBF16);
  ToyRun run;
  run.steps = 6;
  const ToyResult want = TrainToy(model, run, 2, Roomy(3));
  ASSERT_THAT(want.status, IsOk());
  fs::create_directory(run_);
  HeldDrive drive;
  const ScopedDataFileCalls calls(
      {.fsync = [&](int file) { return drive.Sync(file); }});
  run.between_steps = [&](ZeroEngine& engine, int step) -> Status {
    if (step == 0) {
      return engine.Save({.directory = run_, .wait = false}).status();
    }
    if (step != 4) return OkStatus();
    if (!drive.WaitUntilReached()) return Internal("nothing was written");
    if (drive.gave_up()) return Internal("a step waited for the drive");
    drive.Release();
    return engine.FinishSave().status();
  };
  ExpectEqual(TrainToy(model, run, 2, Roomy(3)), want);
  EXPECT_THAT(*ListCheckpoints(run_), SizeIs(1));
}

// The name is given, and the drive does not take the folder's names.
TEST_F(SaveDriveTest, AFailureAfterTheNameSaysThatTheCheckpointIsInPlace) {
  Open();
  ASSERT_THAT(engine_->Save({.directory = run_}), IsOk());
  Train();
  const auto in_place =
      StatusIs(ErrorCode::kIoError,
               AllOf(HasSubstr(CheckpointName(2) + "\" is in place"),
                     Not(HasSubstr("nothing was saved"))));
  for (const bool wait : {true, false}) {
    SCOPED_TRACE(wait);
    {
      const ScopedDataFileCalls calls({.fsync = [&](int file) {
        if (PathOf(file) != run_) return ::fsync(file);
        errno = EIO;
        return -1;
      }});
      Result<SaveResult> saved =
          engine_->Save({.directory = run_, .keep = 1, .wait = wait});
      if (!wait) saved = engine_->FinishSave();
      EXPECT_THAT(saved.status(), in_place);
    }
    // The old one and the new one, and what the second save replaced.
    EXPECT_THAT(*ListCheckpoints(run_), SizeIs(2));
    EXPECT_EQ(fs::exists(DraftPath(run_, 2) + "/" + kManifestName), !wait);
    EXPECT_EQ(engine_->Load({.directory = run_})->step, 2);
  }
  // Whoever saves next cleans up.
  ASSERT_THAT(engine_->Save({.directory = run_, .keep = 1}), IsOk());
  EXPECT_FALSE(fs::exists(DraftPath(run_, 2)));
  EXPECT_THAT(*ListCheckpoints(run_), SizeIs(1));
}

TEST_F(SaveDriveTest, AFailureBeforeTheNameSaysThatNothingWasSaved) {
  Open();
  for (const bool wait : {true, false}) {
    for (const std::string name :
         {"model.safetensors", "castor.json", "optimizer", ""}) {
      SCOPED_TRACE(name);
      const std::string draft = DraftPath(run_, 1);
      const std::string failing = name.empty() ? draft : draft + "/" + name;
      const ScopedDataFileCalls calls({.fsync = [&](int file) {
        if (PathOf(file) != failing) return ::fsync(file);
        errno = EIO;
        return -1;
      }});
      Result<SaveResult> saved =
          engine_->Save({.directory = run_, .wait = wait});
      if (!wait) saved = engine_->FinishSave();
      EXPECT_THAT(saved.status(), StatusIs(ErrorCode::kIoError,
                                           AllOf(HasSubstr("nothing was saved"),
                                                 Not(HasSubstr("in place")))));
      EXPECT_FALSE(fs::exists(draft));
      EXPECT_THAT(*ListCheckpoints(run_), IsEmpty());
    }
  }
}

TEST_F(SaveDriveTest, EveryRankIsToldThatTheCheckpointIsInPlace) {
  const ToyModel model = MakeToyModel(79, 6, 700, DType::kF32);
  ToyRun run;
  const ScopedDataFileCalls calls({.fsync = [&](int file) {
    if (PathOf(file) != run_) return ::fsync(file);
    errno = EIO;
    return -1;
  }});
  std::atomic<int> told = 0;
  run.between_steps = [&](ZeroEngine& engine, int) -> Status {
    const Status saved = engine.Save({.directory = run_}).status();
    told += saved.code() == ErrorCode::kIoError &&
            saved.message().find("is in place") != std::string::npos;
    return OkStatus();
  };
  ASSERT_THAT(TrainToy(model, run, 2, Roomy(3)).status, IsOk());
  EXPECT_EQ(told, 2 * std::ssize(*ListCheckpoints(run_)));
  EXPECT_GE(told, 2);
}

}  // namespace
}  // namespace castor
