// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/text_data.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor::gpt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TextDataTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(
        std::filesystem::path(dir_.File(name)).parent_path());
    std::ofstream(dir_.File(name), std::ios::binary) << text;
  }
  // All bytes of the data, in order.
  static std::string All(const TextData& data) {
    const int seq = static_cast<int>(data.size()) - 1;
    std::vector<int> tokens(static_cast<size_t>(seq));
    std::vector<int> targets(tokens.size());
    data.Sample({}, 1, seq, tokens, targets);
    std::string text(tokens.begin(), tokens.end());
    return text + static_cast<char>(targets.back());
  }

  TempDir dir_;
};

TEST_F(TextDataTest, ReadsAFile) {
  Write("a.txt", "hello");
  const auto data = TextData::Load(dir_.File("a.txt"), 5);
  ASSERT_THAT(data, IsOk());
  EXPECT_EQ(All(*data), "hello");
  EXPECT_EQ(data->files(), 1);
}

TEST_F(TextDataTest, ReadsAFolderInTheOrderOfItsPaths) {
  Write("b", "2");
  Write("a/z", "1");
  Write("c/d/e", "4");
  Write("c/a", "3");
  Write("empty", "");
  const auto data = TextData::Load(dir_.path(), 2);
  ASSERT_THAT(data, IsOk());
  EXPECT_EQ(All(*data), "1234");
  EXPECT_EQ(data->files(), 4);
}

TEST_F(TextDataTest, PassesOverBinaryAndHiddenFilesAndSecondNames) {
  Write("a", "text");
  Write("b", std::string("bi\0nary", 7));
  Write(".c", "hidden");
  Write(".git/d", "hidden too");
  std::filesystem::create_symlink("a", dir_.File("e"));
  std::filesystem::create_symlink("nowhere", dir_.File("f"));
  const auto data = TextData::Load(dir_.path(), 2);
  ASSERT_THAT(data, IsOk());
  EXPECT_EQ(All(*data), "text");
  Write("g", "");
  for (const std::string name : {"a", "b", ".c", "g", "none"}) {
    EXPECT_EQ(TextData::Takes(dir_.File(name)), name == "a") << name;
  }
}

TEST_F(TextDataTest, TakesASingleFileAsItIs) {
  Write("b", std::string("bi\0nary", 7));
  const auto data = TextData::Load(dir_.File("b"), 2);
  ASSERT_THAT(data, IsOk());
  EXPECT_EQ(data->size(), 7);
}

TEST_F(TextDataTest, RefusesWhatIsEmptyOrTooShort) {
  Write("empty", "");
  Write("short", "short");
  EXPECT_THAT(TextData::Load(dir_.File("empty"), 2),
              StatusIs(ErrorCode::kMalformed, HasSubstr("holds no text")));
  EXPECT_THAT(TextData::Load(dir_.File("short"), 257),
              StatusIs(ErrorCode::kMalformed,
                       AllOf(HasSubstr("holds 5 bytes"), HasSubstr("257"))));
  std::filesystem::remove(dir_.File("short"));
  EXPECT_THAT(TextData::Load(dir_.path(), 2),
              StatusIs(ErrorCode::kMalformed, HasSubstr("holds no text")));
}

TEST_F(TextDataTest, RefusesWhatIsNotThereOrNoFile) {
  EXPECT_THAT(TextData::Load(dir_.File("missing"), 2),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("no such file")));
  ASSERT_EQ(mkfifo(dir_.File("pipe").c_str(), 0600), 0);
  EXPECT_THAT(TextData::Load(dir_.File("pipe"), 2),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("neither a file nor a folder")));
}

TEST_F(TextDataTest, SaysWhatCannotBeRead) {
  // Even root cannot read its own address 0.
  EXPECT_THAT(
      TextData::Load("/proc/self/mem", 2),
      StatusIs(ErrorCode::kIoError, AllOf(HasSubstr("/proc/self/mem"),
                                          HasSubstr("Input/output error"))));
  if (geteuid() == 0) GTEST_SKIP() << "root reads what nobody may read";
  Write("secret", "text");
  ASSERT_EQ(chmod(dir_.File("secret").c_str(), 0), 0);
  EXPECT_THAT(TextData::Load(dir_.path(), 2),
              StatusIs(ErrorCode::kIoError, HasSubstr("secret")));
}

TEST_F(TextDataTest, TargetsAreTheTokensThatFollow) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 1000; ++i) bytes.push_back(static_cast<uint8_t>(i % 251));
  const TextData data(bytes);
  std::vector<int> tokens(40);
  std::vector<int> targets(40);
  data.Sample({.seed = 3, .step = 9}, 4, 10, tokens, targets);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(targets[i], (tokens[i] + 1) % 251);
    if (i % 10 != 0) {
      EXPECT_EQ(tokens[i], targets[i - 1]);
    }
  }
}

TEST_F(TextDataTest, EveryStepRankAndMicroBatchGetsSequencesOfItsOwn) {
  std::vector<uint8_t> bytes(100'000);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i * i / 97 % 253);
  }
  const TextData data(bytes);
  std::set<std::vector<int>> seen;
  const auto sample = [&](const BatchKey& key) {
    std::vector<int> tokens(2 * 16);
    std::vector<int> targets(2 * 16);
    data.Sample(key, 2, 16, tokens, targets);
    return tokens;
  };
  for (int64_t step = 0; step < 3; ++step) {
    for (int rank = 0; rank < 3; ++rank) {
      for (int micro = 0; micro < 3; ++micro) {
        const BatchKey key = {1, step, rank, micro};
        EXPECT_TRUE(seen.insert(sample(key)).second);
        EXPECT_EQ(sample(key), sample(key));
      }
    }
  }
  EXPECT_TRUE(seen.insert(sample({2, 0, 0, 0})).second);
}

}  // namespace
}  // namespace castor::gpt
