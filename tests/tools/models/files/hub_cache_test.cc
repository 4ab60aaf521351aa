// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "chunk/base/status.h"
#include "tests/tools/models/model_files.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A cache as huggingface_hub lays it out: blobs, and links to them.
class HubCacheTest : public testing::Test {
 protected:
  void Add(const std::string& model, const std::string& revision,
           const std::string& file, const std::string& bytes) {
    const std::string blob = "blob-" + std::to_string(++blobs_);
    folder_.Write(model + "/blobs/" + blob, bytes);
    const fs::path link =
        fs::path(folder_.At(model)) / "snapshots" / revision / file;
    fs::create_directories(link.parent_path());
    fs::create_symlink("../../blobs/" + blob, link);
  }
  Result<std::string> Find(const std::string& text) {
    return FindInHubCache(*ParseHubName(text), folder_.path());
  }
  std::string Refusal(const std::string& text, ErrorCode code) {
    const Status status = Find(text).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  TempFolder folder_;
  int blobs_ = 0;
};

TEST_F(HubCacheTest, FollowsMainToItsSnapshot) {
  Add("models--org--tiny", "aaa", "config.json", "old");
  Add("models--org--tiny", "bbb", "config.json", "new");
  folder_.Write("models--org--tiny/refs/main", "bbb");
  const auto found = Find("org/tiny");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, folder_.At("models--org--tiny/snapshots/bbb"));
  EXPECT_TRUE(fs::is_regular_file(*found + "/config.json"));
}

TEST_F(HubCacheTest, TakesARevisionByCommitBranchOrPull) {
  Add("models--org--tiny", "aaa", "config.json", "");
  Add("models--org--tiny", "bbb", "config.json", "");
  folder_.Write("models--org--tiny/refs/main", "bbb\n");
  folder_.Write("models--org--tiny/refs/v1.0", "aaa");
  folder_.Write("models--org--tiny/refs/refs/pr/3", "aaa");
  for (const std::string name :
       {"org/tiny@aaa", "org/tiny@v1.0", "org/tiny@refs/pr/3"}) {
    const auto found = Find(name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_THAT(*found, testing::EndsWith("/snapshots/aaa"));
  }
}

TEST_F(HubCacheTest, TakesTheOnlySnapshotWithoutAnyRef) {
  Add("models--gpt2", "aaa", "config.json", "");
  const auto found = Find("gpt2");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, testing::EndsWith("models--gpt2/snapshots/aaa"));
}

TEST_F(HubCacheTest, DoesNotChooseAmongRevisions) {
  for (const std::string revision : {"ccc", "aaa", "bbb"}) {
    Add("models--org--tiny", revision, "config.json", "");
  }
  EXPECT_THAT(Refusal("org/tiny", ErrorCode::kInvalidArgument),
              testing::AllOf(HasSubstr("holds 3 revisions of \"org/tiny\""),
                             HasSubstr("org/tiny@REVISION: \"aaa\", \"bbb\", "
                                       "\"ccc\"")));
}

TEST_F(HubCacheTest, SaysWhereItLookedAndWhatToDo) {
  EXPECT_THAT(Refusal("org/none", ErrorCode::kInvalidArgument),
              testing::AllOf(HasSubstr(folder_.At("models--org--none")),
                             HasSubstr("nothing is read online"),
                             HasSubstr("`hf download org/none`")));
  Add("models--org--tiny", "aaa", "config.json", "");
  EXPECT_THAT(Refusal("org/tiny@zzz", ErrorCode::kInvalidArgument),
              testing::AllOf(HasSubstr("holds no revision \"zzz\""),
                             HasSubstr("there is \"aaa\""),
                             HasSubstr("--revision zzz")));
  folder_.Write("models--org--tiny/refs/main", "ddd");
  EXPECT_THAT(Refusal("org/tiny", ErrorCode::kInvalidArgument),
              HasSubstr("which refs/main says is ddd"));
}

TEST_F(HubCacheTest, FollowsNoRefOutOfTheCache) {
  Add("models--org--tiny", "aaa", "config.json", "");
  for (const std::string ref : {"../../../etc", "/etc", "", "..", "a/b"}) {
    folder_.Write("models--org--tiny/refs/main", ref);
    EXPECT_THAT(Refusal("org/tiny", ErrorCode::kMalformed),
                HasSubstr("where the name of a snapshot belongs"))
        << ref;
  }
}

TEST(HubNameTest, TellsNamesFromPaths) {
  const auto name = ParseHubName("meta-llama/Llama-3.1_8B@v1");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->org, "meta-llama");
  EXPECT_EQ(name->name, "Llama-3.1_8B");
  EXPECT_EQ(name->revision, "v1");
  EXPECT_EQ(ParseHubName("gpt2")->org, "");
  for (const std::string other :
       {"", "/", "a/", "/a", "a/b/c", "./a", "../a", "a/..", "~/a", "a b/c",
        "a/b@", "a/b@../c", "a/b@c//d", "a/b@c@d", "@a", "a\\b", "a/b\n"}) {
    EXPECT_FALSE(ParseHubName(other).has_value()) << other;
  }
}

// Sets the variables that lead to the cache, and puts them back.
class HubCacheFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override {
    for (const char* name : kNames) unsetenv(name);
    if (!home_.empty()) setenv("HOME", home_.c_str(), 1);
  }

  static constexpr const char* kNames[] = {"HF_HUB_CACHE",
                                           "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                           "XDG_CACHE_HOME", "HOME"};
  const std::string home_ = getenv("HOME") == nullptr ? "" : getenv("HOME");
};

TEST_F(HubCacheFolderTest, FollowsTheVariablesOfTheHub) {
  EXPECT_EQ(HubCacheFolder(), "");
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(HubCacheFolder(), "/home/me/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(HubCacheFolder(), "/cache/huggingface/hub");
  setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(HubCacheFolder(), "/home/me/hf/hub");
  setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(HubCacheFolder(), "/old");
  setenv("HF_HUB_CACHE", "/new", 1);
  EXPECT_EQ(HubCacheFolder(), "/new");
  setenv("HF_HUB_CACHE", "", 1);
  EXPECT_EQ(HubCacheFolder(), "/old");
}

}  // namespace
}  // namespace castor
