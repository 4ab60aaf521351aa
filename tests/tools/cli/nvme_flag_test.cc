// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/nvme_flag.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(NvmeFlagTest, NamesADirectoryAndMayGiveASize) {
  const auto drives = ParseNvmeFlag({"/mnt/a", "/mnt/b:1.5GiB", "c:24GB"});
  ASSERT_THAT(drives, IsOk());
  ASSERT_EQ(drives->size(), 3u);
  EXPECT_EQ((*drives)[0].directory, "/mnt/a");
  EXPECT_EQ((*drives)[0].size, std::nullopt);
  EXPECT_EQ((*drives)[1].directory, "/mnt/b");
  EXPECT_EQ((*drives)[1].size, MiB(1536));
  EXPECT_EQ((*drives)[2].directory, "c");
  EXPECT_EQ((*drives)[2].size, Bytes(24'000'000'000));
  EXPECT_TRUE(ParseNvmeFlag({})->empty());
}

TEST(NvmeFlagTest, APathMayContainColons) {
  TempDir dir;
  const std::string odd = dir.File("run:3:4KiB");
  std::filesystem::create_directory(odd);
  auto drives = ParseNvmeFlag({odd});
  ASSERT_THAT(drives, IsOk());
  EXPECT_EQ((*drives)[0].directory, odd) << "it is a directory";
  EXPECT_EQ((*drives)[0].size, std::nullopt);
  drives = ParseNvmeFlag({odd + ":2MiB", dir.File("a:b") + ":8KiB"});
  ASSERT_THAT(drives, IsOk());
  EXPECT_EQ((*drives)[0].directory, odd);
  EXPECT_EQ((*drives)[0].size, MiB(2));
  EXPECT_EQ((*drives)[1].directory, dir.File("a:b"));
}

TEST(NvmeFlagTest, SaysWhatIsWrong) {
  auto says = [](const std::string& value, const std::string& part) {
    EXPECT_THAT(
        ParseNvmeFlag({value}),
        StatusIs(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("--nvme"), HasSubstr(value), HasSubstr(part))))
        << value;
  };
  says("", "names no directory");
  says(":4GiB", "before the colon");
  says("/no/such:lots", "\"lots\" is not a size");
  says("/no/such:lots", "no such directory");
  says("/no/such:4G", "4GiB or 4GB");
  says("/no/such:", "it is empty");
  says("/no/such:-1GiB", "never negative");
  says("/no/such:0", "may hold nothing");
}

TEST(NvmeFlagTest, ADirectoryIsGivenOnce) {
  TempDir dir;
  EXPECT_THAT(
      ParseNvmeFlag(
          {dir.path().string() + ":1GiB",
           dir.File("../") + dir.path().filename().string() + ":1GiB"}),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("was given before")));
  EXPECT_THAT(ParseNvmeFlag({"/no/such/a", "/no/such/a:4GiB"}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("given before")));
}

}  // namespace
}  // namespace castor
