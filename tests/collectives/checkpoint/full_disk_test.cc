// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Saves to file systems that are too small or may not be written: the failure
// says so, nothing is left behind, and the checkpoint before stays good.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

class FullDiskTest : public testing::Test {
 protected:
  // Calls `body` on the mount, with an engine of one parameter of 64 KiB.
  void RunOn(const PrivateMount& mount, const std::function<void()>& body) {
    RunWithPrivateMount(mount, dir_.path(), [&] {
      ThreadPool pool(2);
      Log log([](LogLevel, std::string_view) {});
      const auto world = MakeInProcessWorld({.executor = &pool});
      ZeroOptions options;
      options.executor = &pool;
      options.log = &log;
      options.device_budget = MiB(8);
      ASSERT_OK_AND_ASSIGN(auto engine,
                           ZeroEngine::Create(options, world[0].get()));
      engine_ = engine.get();
      ASSERT_OK_AND_ASSIGN(
          const ParamId param,
          engine_->Register({"w", {16384}, DType::kF32, true}, nullptr));
      param_ = param;
      ASSERT_THAT(engine_->Seal({}), IsOk());
      body();
      EXPECT_THAT(engine_->Close(), IsOk());
    });
  }
  // Trains a step and saves 192 KiB.
  Status TrainAndSave(const std::string& directory) {
    ThreadLane lane("compute");
    CASTOR_RETURN_IF_ERROR(engine_->BeginMicroBatch(true));
    CASTOR_ASSIGN_OR_RETURN(void* const grad, engine_->Grad(param_, lane));
    static_cast<float*>(grad)[0] = 1;
    CASTOR_RETURN_IF_ERROR(engine_->GradReady(param_, lane));
    CASTOR_RETURN_IF_ERROR(engine_->Step(0.1).status());
    return engine_->Save({.directory = directory}).status();
  }

  TempDir dir_;
  ZeroEngine* engine_ = nullptr;
  ParamId param_;
};

TEST_F(FullDiskTest, AFullDiskLeavesTheCheckpointBefore) {
  RunOn({.type = "tmpfs", .options = "size=300k"}, [&] {
    const std::string run = dir_.File("run");
    ASSERT_THAT(TrainAndSave(run), IsOk());
    const uint64_t digest = *engine_->WeightDigest();
    EXPECT_THAT(TrainAndSave(run),
                StatusIs(ErrorCode::kIoError, Says("free some space")));
    EXPECT_FALSE(std::filesystem::exists(DraftPath(run, 2)));
    ASSERT_OK_AND_ASSIGN(const LoadResult loaded,
                         engine_->Load({.directory = run}));
    EXPECT_EQ(loaded.step, 1);
    EXPECT_EQ(*engine_->WeightDigest(), digest);
  });
}

TEST_F(FullDiskTest, AFolderThatMayNotBeWrittenIsNamed) {
  RunOn({.type = "tmpfs", .options = "size=1m", .read_only = true}, [&] {
    for (const std::string& run : {dir_.path().string(), dir_.File("run")}) {
      EXPECT_THAT(TrainAndSave(run),
                  StatusIs(ErrorCode::kIoError, Says(dir_.path().string())));
    }
  });
}

}  // namespace
}  // namespace castor
