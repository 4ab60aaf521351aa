// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/file_system_facts.h"

#include <filesystem>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

TEST(FileSystemFactsTest, KnowsThePseudoFileSystemsOfEveryMachine) {
  auto proc = DescribeFileSystem("/proc/self");
  ASSERT_THAT(proc, IsOk());
  EXPECT_EQ(proc->type, "proc");
  EXPECT_FALSE(proc->in_memory);
  EXPECT_FALSE(proc->overlay);
}

TEST(FileSystemFactsTest, FollowsLinksAndRelativePaths) {
  TempDir dir;
  std::filesystem::create_directory_symlink("/proc", dir.File("link"));
  auto facts = DescribeFileSystem(dir.File("link"));
  ASSERT_THAT(facts, IsOk());
  EXPECT_EQ(facts->type, "proc");
  EXPECT_THAT(DescribeFileSystem("."), IsOk());
}

TEST(FileSystemFactsTest, RefusesAPathThatIsNotThere) {
  EXPECT_THAT(DescribeFileSystem("/nonexistent/castor"),
              StatusIs(ErrorCode::kUnavailable,
                       testing::AllOf(testing::HasSubstr("/nonexistent/castor"),
                                      testing::HasSubstr("No such file"))));
}

TEST(FileSystemFactsTest, SaysWhatIsMountedOnTopAndThatItIsMemory) {
  TempDir dir;
  // mountinfo writes the blank as an escape.
  const std::filesystem::path folder = dir.path() / "a folder";
  std::filesystem::create_directory(folder);
  std::filesystem::create_directory(dir.path() / "a folder b");
  const auto result = RunWithPrivateMount(
      {.type = "tmpfs", .options = "size=8m"}, folder, [&]() -> std::string {
        std::filesystem::create_directory(folder / "below");
        auto facts = DescribeFileSystem(folder / "below");
        if (!facts.ok()) return facts.status().ToString();
        if (facts->type != "tmpfs" || !facts->in_memory || facts->overlay) {
          return "taken for " + facts->type;
        }
        if (facts->free <= Bytes(0) || facts->free > MiB(8)) {
          return "free: " + std::to_string(facts->free.count());
        }
        if (facts->size != MiB(8)) {
          return "size: " + std::to_string(facts->size.count());
        }
        auto sibling = DescribeFileSystem(dir.path() / "a folder b");
        auto parent = DescribeFileSystem(dir.path());
        if (!sibling.ok() || !parent.ok() || sibling->type != parent->type) {
          return "a neighbour of like name is taken for the mount";
        }
        return "";
      });
  if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
  EXPECT_EQ(result.failure, "");
}

}  // namespace
}  // namespace castor
