// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/backing_file.h"

#include <fcntl.h>

#include <filesystem>
#include <string>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

TEST(BackingFileTest, HasItsSizeAndSaysHowItWasOpened) {
  TempDir dir;
  auto made = MakeBackingFile(dir.File("data"), MiB(2), nullptr);
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(std::filesystem::file_size(dir.File("data")), 2u << 20);
  const int flags = ::fcntl(made->fd.get(), F_GETFL);
  EXPECT_EQ((flags & O_DIRECT) != 0, made->direct);
  EXPECT_EQ(flags & O_ACCMODE, O_RDWR);
}

TEST(BackingFileTest, NeverOpensAFileThatIsThere) {
  TempDir dir;
  ASSERT_THAT(MakeBackingFile(dir.File("data"), KiB(4), nullptr), IsOk());
  EXPECT_THAT(MakeBackingFile(dir.File("data"), KiB(8), nullptr),
              StatusIs(ErrorCode::kUnavailable,
                       testing::AllOf(testing::HasSubstr(dir.File("data")),
                                      testing::HasSubstr("File exists"))));
  EXPECT_EQ(std::filesystem::file_size(dir.File("data")), 4096u);
}

// ramfs has neither O_DIRECT nor fallocate, and does not say what is free.
TEST(BackingFileTest, FallsBackWhereTheFileSystemRefusesAndSaysSoOnce) {
  TempDir dir;
  const auto result = RunWithPrivateMount(
      {.type = "ramfs", .options = ""}, dir.path(), [&]() -> std::string {
        std::vector<std::string> said;
        Log log(
            [&](LogLevel, std::string_view line) { said.emplace_back(line); });
        for (const char* name : {"a", "b"}) {
          auto made = MakeBackingFile(dir.File(name), MiB(2), &log);
          if (!made.ok()) return made.status().ToString();
          if (made->direct) return "O_DIRECT on ramfs";
          if (std::filesystem::file_size(dir.File(name)) != 2u << 20) {
            return "wrong size";
          }
        }
        if (said.size() != 1) return "said " + std::to_string(said.size());
        for (const char* part : {"O_DIRECT", "page cache", "Invalid argument",
                                 dir.path().c_str(), "ext4"}) {
          if (said[0].find(part) == std::string::npos) {
            return std::string(part) + " is missing in: " + said[0];
          }
        }
        return "";
      });
  if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
  EXPECT_EQ(result.failure, "");
}

}  // namespace
}  // namespace castor
