// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/available_memory.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor::internal {
namespace {

using testing::EndsWith;

// Trees like /proc and /sys/fs/cgroup.
class AvailableMemoryTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<AvailableMemory> Read() {
    return ReadAvailableMemory({folder_.File("proc"), folder_.File("cgroup")});
  }
  void MachineHas(int64_t kib) {
    Write("proc/meminfo",
          "MemTotal:       99999999 kB\nMemFree:  1 kB\n"
          "MemAvailable:   " +
              std::to_string(kib) + " kB\nBuffers: 5 kB\n");
  }

  TempDir folder_;
};

TEST_F(AvailableMemoryTest, IsUnknownWhereTheSystemDoesNotSay) {
  EXPECT_FALSE(Read().has_value());
  Write("proc/meminfo", "MemTotal: 100 kB\n");
  EXPECT_FALSE(Read().has_value());
  Write("proc/meminfo", "MemAvailable: much\n");
  EXPECT_FALSE(Read().has_value());
}

TEST_F(AvailableMemoryTest, IsWhatTheMachineHasWithoutGroups) {
  MachineHas(1000);
  ASSERT_TRUE(Read().has_value());
  EXPECT_EQ(Read()->bytes, KiB(1000));
  EXPECT_THAT(Read()->source, Says("MemAvailable"));
}

TEST_F(AvailableMemoryTest, IsBoundByTheLeastGroupOfVersion2) {
  MachineHas(1000);
  Write("proc/self/cgroup", "0::/user/job/\n");
  Write("cgroup/user/job/memory.max", "max\n");
  Write("cgroup/user/job/memory.current", "4096\n");
  EXPECT_EQ(Read()->bytes, KiB(1000));

  Write("cgroup/user/memory.max", "819200\n");
  Write("cgroup/user/memory.current", "409600\n");
  EXPECT_EQ(Read()->bytes, KiB(400));
  EXPECT_THAT(Read()->source, EndsWith("cgroup/user/memory.max"));

  Write("cgroup/user/job/memory.max", "204800\n");
  EXPECT_EQ(Read()->bytes, KiB(196));
  EXPECT_THAT(Read()->source, EndsWith("cgroup/user/job/memory.max"));
}

TEST_F(AvailableMemoryTest, CountsPageCacheAsAvailable) {
  MachineHas(1000);
  Write("proc/self/cgroup", "0::/job\n");
  Write("cgroup/job/memory.max", "409600\n");
  Write("cgroup/job/memory.current", "307200\n");
  Write("cgroup/job/memory.stat",
        "anon 4096\ninactive_file 102400\nactive_file 51200\n");
  EXPECT_EQ(Read()->bytes, KiB(250));
}

TEST_F(AvailableMemoryTest, ReadsTheRootInsideAContainer) {
  MachineHas(1000);
  Write("proc/self/cgroup", "0::/docker/0123abcd\n");
  Write("cgroup/memory.max", "409600\n");
  Write("cgroup/memory.current", "0\n");
  EXPECT_EQ(Read()->bytes, KiB(400));
}

TEST_F(AvailableMemoryTest, ReadsGroupsOfVersion1) {
  MachineHas(1000);
  Write("proc/self/cgroup",
        "9:name=systemd:/\n4:cpu,memory:/job\n1:cpuset:/\n0::/\n");
  Write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("cgroup/memory/memory.usage_in_bytes", "8192\n");
  EXPECT_EQ(Read()->bytes, KiB(1000));
  Write("cgroup/memory/job/memory.limit_in_bytes", "409600\n");
  Write("cgroup/memory/job/memory.usage_in_bytes", "204800\n");
  Write("cgroup/memory/job/memory.stat",
        "inactive_file 1\ntotal_inactive_file 102400\n");
  EXPECT_EQ(Read()->bytes, KiB(300));
}

TEST_F(AvailableMemoryTest, IsNeverNegative) {
  MachineHas(1000);
  Write("proc/self/cgroup", "0::/\n");
  Write("cgroup/memory.max", "4096\n");
  Write("cgroup/memory.current", "8192\n");
  EXPECT_EQ(Read()->bytes, Bytes(0));
}

TEST_F(AvailableMemoryTest, SkipsLinesItCannotRead) {
  MachineHas(1000);
  Write("proc/self/cgroup", "\nnonsense\n1:memory\n2:memory:relative\n");
  EXPECT_EQ(Read()->bytes, KiB(1000));
}

TEST(RealAvailableMemoryTest, ThisMachineHasSome) {
  const auto available = ReadAvailableMemory();
  ASSERT_TRUE(available.has_value());
  EXPECT_GT(available->bytes, MiB(1));
}

}  // namespace
}  // namespace castor::internal
