// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

using testing::HasSubstr;

// A command line with one flag of each kind.
struct Flags {
  Flags() {
    CLI::App& app = line.app();
    AddPositional(app, "MODEL", &model, "what to read");
    AddSizeFlag(app, "--min", &min, "least size");
    AddSizeFlag(app, "--device-budget", &budget, "bytes on the device");
    AddIntFlag(app, "--world", &world, 1, 1024, "ranks");
    AddRealFlag(app, "--lr", &lr, 0, 1, "learning rate");
    AddChoiceFlag(app, "--mode", &mode, {"uniform", "layer"}, "how");
    AddTextFlag(app, "--text", &text, "a path");
    AddTextListFlag(app, "--freeze", &freeze, "a pattern");
    AddSwitch(app, "--json", &json, "print JSON");
  }

  CommandLine line{"tool", "a test"};
  std::string model;
  Bytes min = MiB(32);
  std::optional<Bytes> budget;
  int64_t world = 1;
  double lr = 0.5;
  std::string mode = "uniform";
  std::string text = "none";
  std::vector<std::string> freeze;
  bool json = false;
};

TEST(FlagsTest, KeepsDefaultsWhereNothingIsGiven) {
  Flags flags;
  const auto outcome = ParseFlags(flags.line.app(), {"m"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, ParseOutcome::kRun);
  EXPECT_EQ(flags.model, "m");
  EXPECT_EQ(flags.min, MiB(32));
  EXPECT_EQ(flags.budget, std::nullopt);
  EXPECT_EQ(flags.world, 1);
  EXPECT_EQ(flags.lr, 0.5);
  EXPECT_EQ(flags.mode, "uniform");
  EXPECT_FALSE(flags.json);
}

TEST(FlagsTest, ReadsEveryKindInBothSpellings) {
  Flags flags;
  const auto outcome =
      ParseFlags(flags.line.app(), {"--min=1.5GiB", "--device-budget", "24GB",
                                    "--world=8", "--lr", "3e-4", "-", "--mode",
                                    "layer", "--text=a b", "--json"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(flags.model, "-");
  EXPECT_EQ(flags.min, MiB(1536));
  EXPECT_EQ(flags.budget, Bytes(24'000'000'000));
  EXPECT_EQ(flags.world, 8);
  EXPECT_EQ(flags.lr, 3e-4);
  EXPECT_EQ(flags.mode, "layer");
  EXPECT_EQ(flags.text, "a b");
  EXPECT_TRUE(flags.json);
}

TEST(FlagsTest, CollectsTheValuesOfAListAsTheyAre) {
  Flags flags;
  const auto outcome = ParseFlags(
      flags.line.app(), {"--freeze", "[a,b]", "m", "--freeze=*,x", "--freeze",
                         "", "--world", "2", "--freeze", "[a,b]"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(flags.model, "m");
  EXPECT_EQ(flags.world, 2);
  EXPECT_THAT(flags.freeze, testing::ElementsAre("[a,b]", "*,x", "", "[a,b]"));
}

TEST(FlagsTest, HandsTheHelpToTheCaller) {
  Flags flags;
  const auto outcome = ParseFlags(flags.line.app(), {"--help"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, ParseOutcome::kHelpAsked);
  EXPECT_THAT(flags.line.Help(), HasSubstr("--device-budget SIZE"));
  EXPECT_THAT(flags.line.Help(), HasSubstr("--mode uniform|layer"));
}

struct Mistake {
  std::vector<std::string> args;
  std::string message;
};

class FlagMistakeTest : public testing::TestWithParam<Mistake> {};

TEST_P(FlagMistakeTest, IsUsageErrorWithASentence) {
  Flags flags;
  const auto outcome = ParseFlags(flags.line.app(), GetParam().args);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(ExitCode(outcome.status().code()), 2);
  EXPECT_THAT(
      std::string(outcome.status().message()),
      testing::AllOf(HasSubstr(GetParam().message), HasSubstr("tool --help")));
}

INSTANTIATE_TEST_SUITE_P(
    All, FlagMistakeTest,
    testing::Values(
        Mistake{{}, "MODEL is missing"},
        Mistake{{"m", "n"}, "unexpected argument \"n\""},
        Mistake{{"m", "--wrold", "8"}, "\"--wrold\"; did you mean --world?"},
        Mistake{{"--wrold=8"}, "\"--wrold\"; did you mean --world?"},
        Mistake{{"m", "-json"}, "\"-json\"; did you mean --json?"},
        Mistake{{"m", "--zzz"}, "unknown flag \"--zzz\"; known are"},
        Mistake{{"m", "-z"}, "unknown flag \"-z\""},
        Mistake{{"m", "--\x1b[2J"}, "\"--\\x1b[2J\""},
        Mistake{{"m", "--min"}, "--min needs a value"},
        Mistake{{"m", "--text", ""}, "--text: its value is empty"},
        Mistake{{"--min=", "m"}, "\"--min=\" has no value"},
        Mistake{{"m", "--min", "24G"}, "--min: \"24G\" is not a size"},
        Mistake{{"m", "--min", "-1"}, "--min: \"-1\" is not a size"},
        Mistake{{"m", "--min", "--json"}, "--min: \"--json\" is not a size"},
        Mistake{{"m", "--device-budget", "x"}, "--device-budget: \"x\" is not"},
        Mistake{{"m", "--min", "1B", "--min", "2B"},
                "--min is given 2 times; give it once"},
        Mistake{{"m", "--freeze"}, "--freeze needs a value"},
        Mistake{{"m", "--freeze", "a", "b"}, "unexpected argument \"b\""},
        Mistake{{"m", "--freeze", "a", "--freeze", "b", "--min", "1B", "--min",
                 "2B"},
                "--min is given 2 times; give it once"},
        Mistake{{"m", "--world", "0"}, "\"0\" is not a whole number from 1 to"},
        Mistake{{"m", "--world", "1.5"}, "\"1.5\" is not a whole number"},
        Mistake{{"m", "--world", "99999999999999999999"}, "not a whole number"},
        Mistake{{"m", "--world", ""}, "\"\" is not a whole number"},
        Mistake{{"m", "--lr", "nan"}, "\"nan\" is not a number from 0 to 1"},
        Mistake{{"m", "--lr", "1e999"}, "is not a number from 0 to 1"},
        Mistake{{"m", "--mode", "unifrom"}, "; did you mean uniform?"},
        Mistake{{"m", "--mode", "zzz"}, "; known are uniform, layer"},
        Mistake{{"m", "--json=no"}, "--json takes no value"},
        Mistake{{"m", "--json", "--json"}, "--json is given 2 times"}));

}  // namespace
}  // namespace castor
