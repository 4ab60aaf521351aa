// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/cpu_quota.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace castor::internal {
namespace {

// Trees like /proc and /sys/fs/cgroup.
class CpuQuotaTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> Read() {
    return ReadCpuQuota({folder_.File("proc"), folder_.File("cgroup")});
  }

  TempDir folder_;
};

TEST_F(CpuQuotaTest, IsNoneWhereTheSystemDoesNotSay) {
  EXPECT_EQ(Read(), std::nullopt);
  Write("proc/self/cgroup", "0::/job\n");
  EXPECT_EQ(Read(), std::nullopt);
  for (const char* text : {"max 100000\n", "\n", "50000\n", "50000 0\n"}) {
    Write("cgroup/job/cpu.max", text);
    EXPECT_EQ(Read(), std::nullopt) << text;
  }
}

TEST_F(CpuQuotaTest, IsTheLeastOfAllGroupsAbove) {
  Write("proc/self/cgroup", "0::/job/part\n");
  Write("cgroup/job/part/cpu.max", "400000 100000\n");
  EXPECT_EQ(Read(), 4.0);
  Write("cgroup/job/cpu.max", "125000 50000\n");
  EXPECT_EQ(Read(), 2.5);
  Write("cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(Read(), 2.5);
}

TEST_F(CpuQuotaTest, ReadsVersion1) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/job\n");
  Write("cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  Write("cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Read(), std::nullopt);
  Write("cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(Read(), 0.5);
}

}  // namespace
}  // namespace castor::internal
