// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Saves to file systems that are too small or may not be written: the failure
// says so, nothing is left behind, and the checkpoint before stays good.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/executor.h"
#include "offload/lane.h"
#include "tests/support/private_mount.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

// Trains a step of one parameter of 64 KiB and saves it, 192 KiB in all.
std::string TrainAndSave(ZeroEngine& engine, ParamId param, ThreadLane& lane,
                         const std::string& directory, Status* saved) {
  if (!engine.BeginMicroBatch(true).ok()) return "no micro-batch";
  const Result<void*> grad = engine.Grad(param, lane);
  if (!grad.ok()) return "no gradient";
  static_cast<float*>(*grad)[0] = 1;
  if (!engine.GradReady(param, lane).ok()) return "not ready";
  if (!engine.Step(0.1).ok()) return "no step";
  *saved = engine.Save({.directory = directory}).status();
  return "";
}

std::string Contains(const Status& status, const std::string& text) {
  if (status.code() != ErrorCode::kIoError ||
      status.message().find(text) == std::string_view::npos) {
    return "not the failure expected: " + status.ToString();
  }
  return "";
}

class FullDiskTest : public testing::Test {
 protected:
  void RunOn(const PrivateMount& mount,
             const std::function<std::string(const std::string&)>& body) {
    const PrivateMountResult result = RunWithPrivateMount(
        mount, dir_.path(), [&] { return body(dir_.path().string()); });
    if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
    EXPECT_EQ(result.failure, "");
  }
  // Calls `body` with an engine of one parameter.
  static std::string WithEngine(
      const std::function<std::string(ZeroEngine&, ParamId, ThreadLane&)>&
          body) {
    ThreadPool pool(2);
    Log log([](LogLevel, std::string_view) {});
    const auto world = MakeInProcessWorld({.executor = &pool});
    ZeroOptions options;
    options.executor = &pool;
    options.log = &log;
    options.device_budget = MiB(8);
    Result<std::unique_ptr<ZeroEngine>> engine =
        ZeroEngine::Create(options, world[0].get());
    if (!engine.ok()) return engine.status().ToString();
    const Result<ParamId> param =
        (*engine)->Register({"w", {16384}, DType::kF32, true}, nullptr);
    if (!param.ok()) return "no parameter";
    if (const Status sealed = (*engine)->Seal({}); !sealed.ok()) {
      return sealed.ToString();
    }
    ThreadLane lane("compute");
    std::string failure = body(**engine, *param, lane);
    if (!(*engine)->Close().ok()) failure += " not closed";
    return failure;
  }

  TempDir dir_;
};

TEST_F(FullDiskTest, AFullDiskLeavesTheCheckpointBefore) {
  RunOn({.type = "tmpfs", .options = "size=300k"}, [](const std::string& disk) {
    return WithEngine([&](ZeroEngine& engine, ParamId param, ThreadLane& lane) {
      const std::string run = disk + "/run";
      Status saved;
      std::string failure = TrainAndSave(engine, param, lane, run, &saved);
      if (!failure.empty()) return failure;
      if (!saved.ok()) return saved.ToString();
      const uint64_t digest = *engine.WeightDigest();
      failure = TrainAndSave(engine, param, lane, run, &saved);
      if (!failure.empty()) return failure;
      failure = Contains(saved, "free some space");
      if (!failure.empty()) return failure;
      if (fs::exists(DraftPath(run, 2))) return std::string("a draft is left");
      const Result<LoadResult> loaded = engine.Load({.directory = run});
      if (!loaded.ok()) return loaded.status().ToString();
      if (loaded->step != 1) return std::string("another step");
      return *engine.WeightDigest() == digest ? std::string()
                                              : std::string("other weights");
    });
  });
}

TEST_F(FullDiskTest, AFolderThatMayNotBeWrittenIsNamed) {
  RunOn({.type = "tmpfs", .options = "size=1m", .read_only = true},
        [](const std::string& disk) {
          return WithEngine(
              [&](ZeroEngine& engine, ParamId param, ThreadLane& lane) {
                for (const std::string& run : {disk, disk + "/run"}) {
                  Status saved;
                  std::string failure =
                      TrainAndSave(engine, param, lane, run, &saved);
                  if (!failure.empty()) return failure;
                  failure = Contains(saved, disk);
                  if (!failure.empty()) return failure;
                }
                return std::string();
              });
        });
}

}  // namespace
}  // namespace castor
