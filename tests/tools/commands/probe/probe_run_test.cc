// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/probe/probe_run.h"

#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "offload/cuda/cuda_calls.h"
#include "placement/machine/tier_model_file.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/file_text.h"
#include "tests/support/private_mount.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

class ProbeRunTest : public testing::Test {
 protected:
  ProbeRunTest() {
    std::filesystem::create_directory(dir_.File("drive"));
    request_.quick = true;
    request_.size = MiB(1);
    request_.output = dir_.File("machine.json");
  }
  Result<ProbeReport> Run() {
    return RunProbe(request_, cuda_, stop_, Console{.out = out_, .err = err_});
  }
  bool DriveIsEmpty() const {
    return std::filesystem::is_empty(dir_.File("drive"));
  }

  const TempDir dir_;
  ProbeRequest request_;
  CudaCalls* cuda_ = nullptr;
  std::function<bool()> stop_ = {};
  std::ostringstream out_, err_;
};

// The first one, because it forks, and those after it start threads.
TEST_F(ProbeRunTest, AFullDriveIsAFailureAtOnce) {
  request_.nvme = {dir_.File("drive")};
  RunWithPrivateMount(
      {.type = "tmpfs", .options = "size=1m"}, dir_.File("drive"), [&] {
        EXPECT_EQ(Run().status().code(), ErrorCode::kUnavailable);
        EXPECT_TRUE(DriveIsEmpty());
      });
}

TEST_F(ProbeRunTest, MeasuresAllThatAMachineFileHolds) {
  request_.nvme = {dir_.File("drive")};
  const Result<ProbeReport> report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(ParseTierModel(FileText(request_.output)).value(), report->model);
  EXPECT_FALSE(report->stopped);
  EXPECT_TRUE(report->nvme->verified_bytes >= MiB(1));
  EXPECT_TRUE(DriveIsEmpty());
  EXPECT_EQ(out_.str(), "");
  // Buffers of a megabyte lie in the caches, where there are any.
  const bool has_caches =
      report->topology.has_value() && !report->topology->caches.empty();
  EXPECT_EQ(err_.str().find("four times") != std::string::npos, has_caches)
      << err_.str();
  // What is not in the file, a noisy machine say, is said.
  std::vector<std::string> names;
  for (const Measured& link : report->links) {
    names.push_back(link.name);
    EXPECT_GE(link.points.size(), 3u) << link.name;
    EXPECT_GT(link.bytes_per_second, 0) << link.name;
    EXPECT_GE(link.error, 0) << link.name;
  }
  EXPECT_EQ(names.size() + report->unmeasured.size(), 9u);
  EXPECT_EQ(ProbeStatus(*report).ok(), report->unmeasured.empty());
  ASSERT_EQ(report->rates.size(), 2u);
  EXPECT_EQ(report->model.memory->bytes_per_second,
            report->rates[0].bytes_per_second);
  EXPECT_TRUE(report->model.optimizer.has_value());
}

TEST_F(ProbeRunTest, WhatIsNotAskedForIsAbsentAndSaid) {
  const Result<ProbeReport> report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->model.nvme_read.has_value());
  ASSERT_FALSE(report->unmeasured.empty());
  EXPECT_EQ(report->unmeasured[0].what, "NVMe");
  EXPECT_FALSE(report->nvme.has_value());
}

TEST_F(ProbeRunTest, MeasuresAGpuWhereThereIsOne) {
  FakeCuda cuda;
  cuda_ = &cuda;
  const ProbeReport report = Run().value();
  EXPECT_FALSE(report.device_is_simulated);
  EXPECT_GT(cuda.calls("MemcpyAsync"), 0);
  EXPECT_TRUE(report.model.host_to_device.has_value() || report.failed);
  EXPECT_EQ(cuda.live(), FakeCuda::Live());
  // Unless it is not wanted.
  const int64_t copied = cuda.calls("MemcpyAsync");
  request_.no_gpu = true;
  EXPECT_TRUE(Run().value().device_is_simulated);
  EXPECT_EQ(cuda.calls("MemcpyAsync"), copied);
}

TEST_F(ProbeRunTest, SimulatesAGpuThatIsNotThereUnlessItWasNamed) {
  FakeCuda cuda({.devices = 0});
  cuda_ = &cuda;
  const ProbeReport report = Run().value();
  EXPECT_TRUE(report.device_is_simulated);
  EXPECT_NE(err_.str().find("the device is simulated: "), std::string::npos)
      << err_.str();
  std::filesystem::remove(request_.output);
  request_.gpu = 0;
  EXPECT_EQ(Run().status().code(), ErrorCode::kUnavailable);
  cuda_ = nullptr;
  const Status without = Run().status();
  EXPECT_EQ(without.code(), ErrorCode::kUnavailable);
  EXPECT_NE(without.message().find("--config=cuda"), std::string::npos)
      << without;
  EXPECT_FALSE(std::filesystem::exists(request_.output));
  request_.no_gpu = true;
  EXPECT_EQ(Run().status().code(), ErrorCode::kInvalidArgument);
}

TEST_F(ProbeRunTest, ADriveThatCannotBeHadIsAFailureAtOnce) {
  request_.nvme = {dir_.File("none")};
  const Status missing = Run().status();
  EXPECT_EQ(missing.code(), ErrorCode::kUnavailable);
  EXPECT_NE(missing.message().find("mkdir -p"), std::string::npos) << missing;
  request_.nvme = {dir_.File("drive") + ":1MiB"};
  const Status small = Run().status();
  EXPECT_EQ(small.code(), ErrorCode::kUnavailable);
  EXPECT_NE(small.message().find("smaller --size than 1MiB"), std::string::npos)
      << small;
  EXPECT_TRUE(DriveIsEmpty());
  EXPECT_FALSE(std::filesystem::exists(request_.output));
}

TEST_F(ProbeRunTest, LeavesNothingWhereItIsStoppedAtOnce) {
  request_.nvme = {dir_.File("drive")};
  int asked = 0;
  stop_ = [&asked] { return ++asked > 4; };
  const ProbeReport report = Run().value();
  EXPECT_TRUE(report.stopped);
  EXPECT_TRUE(report.links.empty());
  EXPECT_EQ(report.output, "");
  EXPECT_FALSE(std::filesystem::exists(request_.output));
  EXPECT_TRUE(DriveIsEmpty());
  EXPECT_EQ(ProbeStatus(report).code(), ErrorCode::kStoppedEarly);
}

TEST_F(ProbeRunTest, KeepsWhatWasMeasuredBeforeItWasStopped) {
  request_.nvme = {dir_.File("drive")};
  // The drive is measured first, and its file is gone when that is done.
  bool begun = false;
  stop_ = [this, &begun] {
    begun = begun || !DriveIsEmpty();
    return begun && DriveIsEmpty();
  };
  const ProbeReport report = Run().value();
  EXPECT_TRUE(report.stopped);
  EXPECT_TRUE(report.nvme.has_value());
  EXPECT_EQ(report.links.size() + report.unmeasured.size(), 3u);
  EXPECT_TRUE(report.rates.empty());
  EXPECT_EQ(ParseTierModel(FileText(request_.output)).value(), report.model);
  EXPECT_EQ(ProbeStatus(report).code(), ErrorCode::kStoppedEarly);
}

TEST_F(ProbeRunTest, RefusesWhatHasNoMeaning) {
  request_.size = KiB(1023);
  EXPECT_EQ(Run().status().code(), ErrorCode::kInvalidArgument);
  request_.size = MiB(1);
  request_.output = dir_.File("none/machine.json");
  EXPECT_EQ(Run().status().code(), ErrorCode::kInvalidArgument);
  request_.output = "";
  request_.nvme = {dir_.File("drive"), dir_.File("drive")};
  EXPECT_EQ(Run().status().code(), ErrorCode::kInvalidArgument);
  request_.nvme = {};
  request_.size = GiB(1 << 20);
  const Status large = Run().status();
  EXPECT_EQ(large.code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace castor
