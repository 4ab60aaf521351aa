// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "chunk/base/status.h"
#include "tests/tools/models/model_files.h"

namespace castor {
namespace {

TEST(InputFileTest, ReadsRangesAndTheWhole) {
  const TempFolder folder;
  const std::string path = folder.Write("a", "0123456789");
  Result<InputFile> file = InputFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->is_regular());
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(*file->ReadAt(3, 4), "3456");
  EXPECT_EQ(*file->ReadAt(10, 0), "");
  EXPECT_EQ(*file->ReadAll(10), "0123456789");
}

TEST(InputFileTest, RefusesToReadPastTheLimit) {
  const TempFolder folder;
  const std::string path = folder.Write("a", std::string(200'000, 'x'));
  Result<InputFile> file = InputFile::Open(path);
  EXPECT_EQ(file->ReadAll(199'999).status().code(), ErrorCode::kMalformed);
  Result<InputFile> endless = InputFile::Open("/dev/zero");
  EXPECT_FALSE(endless->is_regular());
  EXPECT_EQ(endless->ReadAll(1'000'000).status().code(), ErrorCode::kMalformed);
}

TEST(InputFileTest, SaysWhenTheFileGotShorter) {
  const TempFolder folder;
  const std::string path = folder.Write("a", "0123456789");
  const Result<InputFile> file = InputFile::Open(path);
  std::filesystem::resize_file(path, 4);
  const Result<std::string> bytes = file->ReadAt(0, 10);
  EXPECT_EQ(bytes.status().code(), ErrorCode::kMalformed);
  EXPECT_NE(bytes.status().message().find("ends at byte 4"), std::string::npos);
}

TEST(InputFileTest, NamesWhatCannotBeOpened) {
  const TempFolder folder;
  for (const std::string& path :
       {folder.At("none"), folder.path(), folder.Write("f", "") + "/below"}) {
    const Result<InputFile> file = InputFile::Open(path);
    EXPECT_EQ(file.status().code(), ErrorCode::kInvalidArgument) << path;
    EXPECT_NE(file.status().message().find(folder.path()), std::string::npos)
        << file.status();
  }
}

TEST(InputFileTest, DoesNotWaitForAPipeThatMustBeAFile) {
  const TempFolder folder;
  const std::string pipe = folder.At("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(InputFile::OpenRegular(pipe).status().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(InputFile::OpenRegular("/dev/zero").status().code(),
            ErrorCode::kInvalidArgument);
}

TEST(InputFileTest, ReadsAPipeThatSomebodyWritesAndRefusesOneNobodyDoes) {
  const TempFolder folder;
  const std::string pipe = folder.At("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Result<InputFile> refused = InputFile::Open(pipe);
  EXPECT_EQ(refused.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("is a pipe"), std::string::npos);
  // As of a shell's <(command) that takes its time.
  std::thread writer([&] {
    std::ofstream late(pipe);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    late << "written";
  });
  Result<InputFile> file = InputFile::Open(pipe);
  EXPECT_TRUE(file.ok()) << file.status();
  if (file.ok()) {
    EXPECT_EQ(*file->ReadAll(100), "written");
  }
  writer.join();
}

TEST(InputFileTest, MovesItsDescriptor) {
  const TempFolder folder;
  Result<InputFile> first = InputFile::Open(folder.Write("a", "one"));
  Result<InputFile> second = InputFile::Open(folder.Write("b", "three"));
  InputFile file = *std::move(first);
  EXPECT_EQ(*file.ReadAt(0, 3), "one");
  file = *std::move(second);
  EXPECT_EQ(file.size(), 5u);
  EXPECT_EQ(*file.ReadAll(5), "three");
}

}  // namespace
}  // namespace castor
