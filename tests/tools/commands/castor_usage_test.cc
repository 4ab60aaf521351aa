// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What `castor` says to wrong usage and bad input, as a process: one sentence,
// the exit code of its kind, and nothing on the standard output.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/models/model_files.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kCastor[] = "tools/castor";
constexpr char kGpt2Xl[] = "tools/models/configs/gpt2-xl/config.json";
constexpr char kLlama[] = "tools/models/configs/llama-3-8b/config.json";

ProcessOutcome Castor(std::vector<std::string> args,
                      const std::string& input = "") {
  args.insert(args.begin(), kCastor);
  return RunProcess(args, input);
}

struct Mistake {
  std::vector<std::string> args;
  int exit_code;
  std::string message;
};

class CastorMistakeTest : public testing::TestWithParam<Mistake> {};

TEST_P(CastorMistakeTest, EndsWithASentenceAndTheExitCode) {
  const ProcessOutcome outcome = Castor(GetParam().args, "w 1 F32\n");
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr(GetParam().message));
  EXPECT_THAT(outcome.err, StartsWith("castor"));
}

INSTANTIATE_TEST_SUITE_P(
    All, CastorMistakeTest,
    testing::Values(
        Mistake{{"serach"},
                2,
                "unknown command \"serach\"; did you mean "
                "search?"},
        Mistake{{"--versoin"}, 2, "did you mean --version?"},
        Mistake{{"search"}, 2, "MODEL is missing"},
        Mistake{{"search", kGpt2Xl, "--wrold", "8"},
                2,
                "unknown flag \"--wrold\"; did you mean --world?"},
        Mistake{{"search", kGpt2Xl, kLlama}, 2, "unexpected argument"},
        Mistake{{"search", kGpt2Xl, "--min", "24G"},
                2,
                "\"G\" could mean 24GiB or 24GB"},
        Mistake{{"search", kGpt2Xl, "--max", "-1"}, 2, "never negative"},
        Mistake{{"search", kGpt2Xl, "--min", "0"},
                2,
                "--min 0B: a chunk of 0 bytes holds nothing"},
        Mistake{{"plan", kGpt2Xl, "--min", "0"},
                2,
                "a chunk of 0 bytes holds nothing"},
        Mistake{{"search", kGpt2Xl, "--min", "32MiB", "--max", "16MiB"},
                2,
                "--min 32MiB is above --max 16MiB"},
        Mistake{{"search", kGpt2Xl, "--min", "130B", "--max", "140B"},
                2,
                "no chunk size"},
        Mistake{{"search", kGpt2Xl, "--max", "8000000TiB"}, 2, "chunk size"},
        Mistake{{"search", kGpt2Xl, "--world", "0"}, 2, "from 1 to 1048576"},
        Mistake{{"search", kGpt2Xl, "--align", "65"},
                2,
                "--align 65 is not a multiple of 64 elements; try 128"},
        Mistake{
            {"search", kGpt2Xl, "--dtype", "bf61"}, 2, "did you mean BF16?"},
        Mistake{{"search", kGpt2Xl, "--zoo"}, 2, "leave out MODEL"},
        Mistake{{"search", "--zoo", "--explain"}, 2, "are for one MODEL"},
        Mistake{{"search", kGpt2Xl, "--pick", "best"},
                2,
                "--pick best says what -o writes"},
        Mistake{{"search", kGpt2Xl, "--pick", "best", "--chunk", "1MiB"},
                2,
                "give one of them"},
        Mistake{{"search", kGpt2Xl, "--all-gather", "1GB/s"},
                2,
                "there is one rank; give --world"},
        Mistake{{"search", kGpt2Xl, "--h2d", "24"}, 2, "--h2d: "},
        Mistake{{"search", kGpt2Xl, "--h2d", "24GB/s,x"}, 2, "--h2d: "},
        Mistake{{"search", kGpt2Xl, "--machine", "no/such"}, 2, "no such file"},
        Mistake{
            {"search", kGpt2Xl, "--rule", "gemni"}, 2, "did you mean gemini?"},
        Mistake{{"search", kGpt2Xl, "--prefetch", "x"},
                2,
                "not a whole number from 0 to 1024"},
        Mistake{
            {"search", kGpt2Xl, "--mode", "layers"}, 2, "did you mean layer?"},
        Mistake{{"search", kGpt2Xl, "--order", "trace"},
                2,
                "--order trace needs the trace of a step"},
        Mistake{{"search", kGpt2Xl, "--order", "file"},
                2,
                "lists no tensors, so it has no file order"},
        Mistake{{"search", "-", "--expert-layout", "fusd"},
                2,
                "did you mean fused?"},
        Mistake{{"search", kGpt2Xl, "--json", "--plain"}, 2, "exclude each"},
        Mistake{{"search", "no/such/model"}, 2, "no such file or folder"},
        Mistake{{"search", "-"}, 4, "standard input\": line 1: \"w 1 F32\""},
        Mistake{{"search", kCastor}, 4, "castor"}));

TEST(CastorUsageTest, NamesThePlaceInABrokenFile) {
  const TempFolder folder;
  const std::string path = folder.Write(
      "a.safetensors",
      SafetensorsFile(
          R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8));
  const ProcessOutcome outcome = Castor({"search", path, "--json"});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("castor search: \"" + path +
                                      "\": tensor \"w\": its data begins at "
                                      "byte 4"));
}

TEST(CastorUsageTest, FailsWhereTheResultIsLost) {
  const ProcessOutcome outcome =
      RunProcessInto({kCastor, "search", kGpt2Xl}, "/dev/full");
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("could not be written"));
}

TEST(CastorUsageTest, PrintsVersionAndHelp) {
  EXPECT_THAT(Castor({"--version"}).out,
              testing::MatchesRegex("castor [0-9]+\\.[0-9]+\\."
                                    "[0-9]+\n"));
  EXPECT_THAT(Castor({"help"}).out, HasSubstr("search"));
  const ProcessOutcome help = Castor({"help", "search"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--device-budget SIZE"));
  EXPECT_EQ(Castor({"search", "--help"}).out, help.out);
  const ProcessOutcome none = Castor({});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err,
              EndsWith("\ncastor: a command is missing; castor help says which "
                       "there are\n"));
}

}  // namespace
}  // namespace castor
