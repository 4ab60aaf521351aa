// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/cgroup_folders.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/host/available_memory.h"
#include "offload/host/cpu_quota.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor::internal {
namespace {

using testing::EndsWith;

using Folders = std::vector<std::pair<std::string, int>>;

// Trees like /proc and /sys/fs/cgroup.
class SystemTree : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void ProcessIsIn(const std::string& groups) {
    Write("proc/self/cgroup", groups);
  }

  TempDir folder_;
};

class CgroupFoldersTest : public SystemTree {
 protected:
  Folders Read(std::string_view controller) {
    Folders found;
    for (const CgroupFolder& folder :
         CgroupFolders({folder_.File("proc"), "/cg"}, controller)) {
      found.emplace_back(folder.path, folder.version);
    }
    return found;
  }
};

TEST_F(CgroupFoldersTest, AreAllFromTheProcessesOwnUpToTheRoot) {
  ProcessIsIn("0::/user/job/\n");
  EXPECT_EQ(Read("cpu"),
            (Folders{{"/cg/user/job", 2}, {"/cg/user", 2}, {"/cg", 2}}));
}

TEST_F(CgroupFoldersTest, OfVersion1AreThoseOfTheController) {
  ProcessIsIn("7:cpuset:/a\n4:cpu,cpuacct:/b\n2:memory:/c\n");
  EXPECT_EQ(Read("cpu"), (Folders{{"/cg/cpu/b", 1}, {"/cg/cpu", 1}}));
  EXPECT_EQ(Read("memory"), (Folders{{"/cg/memory/c", 1}, {"/cg/memory", 1}}));
  EXPECT_TRUE(Read("io").empty());
}

TEST_F(CgroupFoldersTest, OfBothVersionsAtATimeAllCount) {
  ProcessIsIn("3:cpu:/\n0::/x\n");
  EXPECT_EQ(Read("cpu"), (Folders{{"/cg/cpu", 1}, {"/cg/x", 2}, {"/cg", 2}}));
}

TEST_F(CgroupFoldersTest, AreNoneWhereTheSystemDoesNotSay) {
  EXPECT_TRUE(Read("cpu").empty());
  ProcessIsIn("nonsense\n0:\n1:cpu:relative\n");
  EXPECT_TRUE(Read("cpu").empty());
}

class AvailableMemoryTest : public SystemTree {
 protected:
  std::optional<AvailableMemory> Read() {
    return ReadAvailableMemory({folder_.File("proc"), folder_.File("cgroup")});
  }
  void MachineHas(int64_t kib) {
    Write("proc/meminfo",
          "MemTotal:       99999999 kB\nMemFree:  1 kB\n"
          "MemAvailable:   " +
              std::to_string(kib) + " kB\nBuffers: 5 kB\n");
  }
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
  ProcessIsIn("0::/user/job/\n");
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
  ProcessIsIn("0::/job\n");
  Write("cgroup/job/memory.max", "409600\n");
  Write("cgroup/job/memory.current", "307200\n");
  Write("cgroup/job/memory.stat",
        "anon 4096\ninactive_file 102400\nactive_file 51200\n");
  EXPECT_EQ(Read()->bytes, KiB(250));
}

TEST_F(AvailableMemoryTest, ReadsTheRootInsideAContainer) {
  MachineHas(1000);
  ProcessIsIn("0::/docker/0123abcd\n");
  Write("cgroup/memory.max", "409600\n");
  Write("cgroup/memory.current", "0\n");
  EXPECT_EQ(Read()->bytes, KiB(400));
}

TEST_F(AvailableMemoryTest, ReadsGroupsOfVersion1) {
  MachineHas(1000);
  ProcessIsIn("9:name=systemd:/\n4:cpu,memory:/job\n1:cpuset:/\n0::/\n");
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
  ProcessIsIn("0::/\n");
  Write("cgroup/memory.max", "4096\n");
  Write("cgroup/memory.current", "8192\n");
  EXPECT_EQ(Read()->bytes, Bytes(0));
}

TEST_F(AvailableMemoryTest, SkipsLinesItCannotRead) {
  MachineHas(1000);
  ProcessIsIn("\nnonsense\n1:memory\n2:memory:relative\n");
  EXPECT_EQ(Read()->bytes, KiB(1000));
}

TEST_F(AvailableMemoryTest, IsLessForSlabsByWhatTheProcessTakesBesideThem) {
  const auto read = [&] {
    return ReadSpareMemory({folder_.File("proc"), folder_.File("cgroup")});
  };
  EXPECT_FALSE(read().has_value());
  MachineHas(50 << 10);
  ASSERT_TRUE(read().has_value());
  EXPECT_EQ(read()->bytes, MiB(50) - kBesideSlabs);
  EXPECT_EQ(read()->source, Read()->source);
  MachineHas(1 << 10);
  EXPECT_EQ(read()->bytes, Bytes(0));
}

TEST(RealAvailableMemoryTest, ThisMachineHasSome) {
  const auto available = ReadAvailableMemory();
  ASSERT_TRUE(available.has_value());
  EXPECT_GT(available->bytes, MiB(1));
}

class CpuQuotaTest : public SystemTree {
 protected:
  std::optional<double> Read() {
    return ReadCpuQuota({folder_.File("proc"), folder_.File("cgroup")});
  }
};

TEST_F(CpuQuotaTest, IsNoneWhereTheSystemDoesNotSay) {
  EXPECT_EQ(Read(), std::nullopt);
  ProcessIsIn("0::/job\n");
  EXPECT_EQ(Read(), std::nullopt);
  for (const char* text : {"max 100000\n", "\n", "50000\n", "50000 0\n"}) {
    Write("cgroup/job/cpu.max", text);
    EXPECT_EQ(Read(), std::nullopt) << text;
  }
}

TEST_F(CpuQuotaTest, IsTheLeastOfAllGroupsAbove) {
  ProcessIsIn("0::/job/part\n");
  Write("cgroup/job/part/cpu.max", "400000 100000\n");
  EXPECT_EQ(Read(), 4.0);
  Write("cgroup/job/cpu.max", "125000 50000\n");
  EXPECT_EQ(Read(), 2.5);
  Write("cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(Read(), 2.5);
}

TEST_F(CpuQuotaTest, ReadsVersion1) {
  ProcessIsIn("4:cpu,cpuacct:/job\n");
  Write("cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  Write("cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Read(), std::nullopt);
  Write("cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(Read(), 0.5);
}

}  // namespace
}  // namespace castor::internal
