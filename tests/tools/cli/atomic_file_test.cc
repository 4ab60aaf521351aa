// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int FilesIn(const fs::path& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    count += entry.exists() ? 1 : 0;
  }
  return count;
}

TEST(AtomicFileTest, WritesANewFileAndReplacesIt) {
  const TempDir folder;
  const std::string path = (folder.path() / "a.json").string();
  ASSERT_TRUE(WriteFileAtomically(path, "first").ok());
  EXPECT_EQ(Read(path), "first");
  ASSERT_TRUE(WriteFileAtomically(path, "2").ok());
  EXPECT_EQ(Read(path), "2");
  EXPECT_EQ(FilesIn(folder.path()), 1);
}

TEST(AtomicFileTest, SaysBeforeTheWorkWhatCannotBeWritten) {
  const TempDir folder;
  const std::string path = (folder.path() / "a").string();
  EXPECT_TRUE(CheckFileTarget(path).ok());
  EXPECT_EQ(FilesIn(folder.path()), 0);
  for (const std::string& bad :
       {std::string(), folder.path().string(), path + "/b"}) {
    EXPECT_EQ(CheckFileTarget(bad).code(), ErrorCode::kInvalidArgument) << bad;
    EXPECT_EQ(CheckFileTarget(bad).message(),
              WriteFileAtomically(bad, "x").message());
  }
}

TEST(AtomicFileTest, GivesTheRightsThatTheUserAskedFor) {
  const TempDir folder;
  const std::string path = (folder.path() / "a").string();
  const mode_t before = umask(027);
  const Status status = WriteFileAtomically(path, "x");
  umask(before);
  ASSERT_TRUE(status.ok()) << status;
  struct stat found = {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640u);
}

TEST(AtomicFileTest, WritesThroughALink) {
  const TempDir folder;
  ASSERT_TRUE(WriteFileAtomically((folder.path() / "a").string(), "old").ok());
  fs::create_symlink("a", folder.path() / "link");
  ASSERT_TRUE(
      WriteFileAtomically((folder.path() / "link").string(), "new").ok());
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(Read(folder.path() / "a"), "new");
}

TEST(AtomicFileTest, RefusesWhatCannotBeAFile) {
  const TempDir folder;
  const std::string here = folder.path().string();
  std::ofstream(here + "/file") << "x";
  const auto refusal = [](const std::string& path) {
    const Status status = WriteFileAtomically(path, "x");
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument) << path;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(""), HasSubstr("the name is empty"));
  EXPECT_THAT(refusal(here), HasSubstr("it is a folder"));
  EXPECT_THAT(refusal(here + "/new/"), HasSubstr("it names a folder"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal(here + "/no/a"), HasSubstr("there is no folder"));
  EXPECT_THAT(refusal(here + "/file/a"), HasSubstr("is not a folder"));
  EXPECT_EQ(FilesIn(folder.path()), 1);
}

TEST(AtomicFileTest, LeavesNothingBehindWhereTheDriveIsFull) {
  const TempDir folder;
  const std::string path = (folder.path() / "a").string();
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  // A limit on the size of files ends a write as a full drive does.
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = WriteFileAtomically(path, std::string(10'000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), ErrorCode::kIoError);
  EXPECT_THAT(std::string(status.message()), HasSubstr("File too large"));
  EXPECT_EQ(Read(path), "old");
  EXPECT_EQ(FilesIn(folder.path()), 1);
}

}  // namespace
}  // namespace castor
