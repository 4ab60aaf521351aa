// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/options/option_words.h"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/nvme_option.h"
#include "placement/homes/static_policy.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Limits = HomeLimits;
using Wrong = std::vector<std::pair<std::string, std::string>>;

// What is said of a value that is wrong, which is quoted.
testing::Matcher<const Status&> IsWrong(const std::string& value,
                                        const std::string& why) {
  return StatusIs(ErrorCode::kInvalidArgument,
                  AllOf(HasSubstr("\"" + value + "\": "), HasSubstr(why)));
}

TEST(OptionWordsTest, LimitsAreSizesOrPercentages) {
  Limits limits;
  for (const char* value : {"param@device=12.5%", "exp_avg@host=1.5GiB",
                            "all@nvme=100%", "grad@host=0"}) {
    ASSERT_THAT(ParseLimit(value, &limits), IsOk());
  }
  EXPECT_THAT(*limits, ElementsAre(HomeLimit{"param", Tier::kDevice, 0.125},
                                   HomeLimit{"exp_avg", Tier::kHost, MiB(1536)},
                                   HomeLimit{"all", Tier::kNvme, 1.0},
                                   HomeLimit{"grad", Tier::kHost, Bytes(0)}));
  EXPECT_THAT(LimitWords(limits),
              ElementsAre("param@device=12.5%", "exp_avg@host=1536MiB",
                          "all@nvme=100%", "grad@host=0B"));
  EXPECT_TRUE(LimitWords(std::nullopt).empty());
}

// Every percentage of nine digits behind the point comes back as it is.
TEST(OptionWordsTest, PercentagesAreReadBackAsTheyAre) {
  for (const char* value : {"0%", "7%", "0.1%", "33.333333333%", "99.99%"}) {
    Limits limits;
    const std::string word = std::string("param@host=") + value;
    ASSERT_THAT(ParseLimit(word, &limits), IsOk());
    EXPECT_THAT(LimitWords(limits), ElementsAre(word));
  }
}

TEST(OptionWordsTest, RulesKeepTheirOrderAndConditions) {
  std::vector<PlacementRule> rules;
  for (const char* value :
       {"nvme:*.experts.*,state=exp_avg,type=bf16,least=1MiB,most=2GiB",
        "device:*", "host:a:b,state=all"}) {
    ASSERT_THAT(ParseRule(value, &rules), IsOk());
  }
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules[0].tier, Tier::kNvme);
  EXPECT_EQ(rules[0].glob, "*.experts.*");
  EXPECT_EQ(rules[0].state, "exp_avg");
  EXPECT_EQ(rules[0].dtype, DType::kBF16);
  EXPECT_EQ(rules[0].least, MiB(1));
  EXPECT_EQ(rules[0].most, GiB(2));
  EXPECT_EQ(rules[1].most, std::nullopt);
  EXPECT_EQ(rules[2].glob, "a:b");
  EXPECT_EQ(rules[2].state, std::nullopt);
  EXPECT_THAT(RuleWords(rules),
              ElementsAre("nvme:*.experts.*,state=exp_avg,type=BF16,least=1MiB,"
                          "most=2GiB",
                          "device:*", "host:a:b"));
}

TEST(OptionWordsTest, SaysWhatIsWrongWithALimit) {
  for (const auto& [value, why] :
       Wrong{{"param", "write it as STATE@TIER=AMOUNT"},
             {"param@device", "write it as STATE@TIER=AMOUNT"},
             {"par-am@device=1%", "\"par-am\" names no state"},
             {"param@devise=1%", "no tier \"devise\"; did you mean device?"},
             {"param@device=101%", "no percentage from 0% to 100%"},
             {"param@device=-1%", "does not begin with a digit"},
             {"param@device=5G", "5G"},
             {"all@device=5GiB", "of each state, or of all together?"}}) {
    Limits limits;
    EXPECT_THAT(ParseLimit(value, &limits), IsWrong(value, why));
  }
  Limits limits;
  ASSERT_THAT(ParseLimit("param@host=1%", &limits), IsOk());
  EXPECT_THAT(ParseLimit("all@host=2%", &limits),
              IsWrong("all@host=2%", "param on host was given a limit before"));
}

TEST(OptionWordsTest, SaysWhatIsWrongWithARule) {
  for (const auto& [value, why] :
       Wrong{{"*.weight", "write it as TIER:GLOB"},
             {"disk:*", "no tier \"disk\"; known are device, host, nvme"},
             {"nvme:*,size=1", "no condition \"size\""},
             {"nvme:*,least", "no condition \"least\""},
             {"nvme:*,type=f17", "no type \"f17\""},
             {"nvme:*,least=1G", "1G"}}) {
    std::vector<PlacementRule> rules;
    EXPECT_THAT(ParseRule(value, &rules), IsWrong(value, why));
  }
}

TEST(OptionWordsTest, ADriveIsADirectoryAndMayHaveASize) {
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

TEST(OptionWordsTest, ADrivesPathMayContainColons) {
  const TempDir dir;
  const std::string odd = dir.File("run:3:4KiB");
  std::filesystem::create_directory(odd);
  const auto whole = ParseNvmeFlag({odd});
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ((*whole)[0].directory, odd) << "it is a directory";
  EXPECT_EQ((*whole)[0].size, std::nullopt);
  const auto sized = ParseNvmeFlag({odd + ":2MiB", dir.File("a:b") + ":8KiB"});
  ASSERT_THAT(sized, IsOk());
  EXPECT_EQ((*sized)[0].directory, odd);
  EXPECT_EQ((*sized)[0].size, MiB(2));
  EXPECT_EQ((*sized)[1].directory, dir.File("a:b"));
}

TEST(OptionWordsTest, SaysWhatIsWrongWithADrive) {
  for (const auto& [value, why] :
       Wrong{{"", "names no directory"},
             {":4GiB", "before the colon"},
             {"/no/such:lots", "\"lots\" is not a size"},
             {"/no/such:lots", "no such directory"},
             {"/no/such:4G", "4GiB or 4GB"},
             {"/no/such:", "it is empty"},
             {"/no/such:-1GiB", "never negative"},
             {"/no/such:0", "may hold nothing"}}) {
    std::vector<NvmeOption> drives;
    EXPECT_THAT(ParseDrive(value, &drives), IsWrong(value, why));
  }
  const TempDir dir;
  for (const std::vector<std::string>& values :
       {std::vector<std::string>{
            dir.path().string() + ":1GiB",
            dir.File("../") + dir.path().filename().string() + ":1GiB"},
        {"/no/such/a", "/no/such/a:4GiB"}}) {
    EXPECT_THAT(
        ParseNvmeFlag(values),
        StatusIs(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("--nvme"), HasSubstr("was given before"))));
  }
}

}  // namespace
}  // namespace castor
