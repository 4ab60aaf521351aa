// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/cgroup_folders.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace castor::internal {
namespace {

using Folders = std::vector<std::pair<std::string, int>>;

class CgroupFoldersTest : public testing::Test {
 protected:
  void ProcessIsIn(const std::string& groups) {
    std::filesystem::create_directories(folder_.path() / "proc/self");
    std::ofstream(folder_.path() / "proc/self/cgroup") << groups;
  }
  Folders Read(std::string_view controller) {
    Folders found;
    for (const CgroupFolder& folder :
         CgroupFolders({folder_.File("proc"), "/cg"}, controller)) {
      found.emplace_back(folder.path, folder.version);
    }
    return found;
  }

  TempDir folder_;
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

TEST_F(CgroupFoldersTest, ReadsFirstLines) {
  std::ofstream(folder_.path() / "file") << "one\ntwo\n";
  EXPECT_EQ(ReadFirstLine(folder_.File("file")), "one");
  EXPECT_EQ(ReadFirstLine(folder_.File("missing")), std::nullopt);
}

}  // namespace
}  // namespace castor::internal
