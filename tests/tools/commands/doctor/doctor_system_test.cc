// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/doctor_system.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

TEST(DoctorSystemTest, ReadsFilesBelowItsRoot) {
  const TempDir root;
  std::filesystem::create_directories(root.path() / "proc/folder");
  std::ofstream(root.path() / "proc/file")
      << " first \nKey:  \t12 kB\nHex: ff\n";
  const DoctorSystem system(root.path().string());
  EXPECT_EQ(system.Line("/proc/file"), "first");
  EXPECT_EQ(system.Line("/proc/none"), std::nullopt);
  EXPECT_EQ(system.Field("/proc/file", "Key:"), 12);
  EXPECT_EQ(system.Field("/proc/file", "Hex:", 16), 255);
  EXPECT_EQ(system.Field("/proc/file", "first"), std::nullopt);
  EXPECT_EQ(system.Field("/proc/file", "None:"), std::nullopt);
  EXPECT_EQ(system.Entries("/proc"),
            (std::vector<std::string>{"file", "folder"}));
  EXPECT_TRUE(system.Entries("/sys").empty());
  EXPECT_EQ(system.paths().cgroup, root.path().string() + "/sys/fs/cgroup");
}

// What is true of every machine that runs this.
TEST(DoctorSystemTest, AsksTheMachineItself) {
  const DoctorSystem system;
  EXPECT_GT(system.Field("/proc/meminfo", "MemTotal:").value_or(0), 0);
  EXPECT_GE(system.UsableCores(), 1);
  EXPECT_FALSE(system.Instructions().name.empty());
  const auto topology = system.Topology();
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(system.TryBind(topology->nodes[0].number), "");
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(system.Limit(RLIMIT_NOFILE).value_or(INT64_MAX),
            static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, INT64_MAX)));
}

TEST(DoctorSystemTest, TriesAFolderAndLeavesNothing) {
  const TempDir dir;
  const DoctorSystem system;
  const Result<bool> direct = system.TryFolder(dir.path());
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_TRUE(system.FileSystem(dir.path()).ok());
  EXPECT_EQ(system.TryFolder(dir.path() / "none").status().code(),
            ErrorCode::kUnavailable);
  std::ofstream(dir.path() / "file") << "x";
  EXPECT_FALSE(system.TryFolder(dir.path() / "file").ok());
}

}  // namespace
}  // namespace castor
