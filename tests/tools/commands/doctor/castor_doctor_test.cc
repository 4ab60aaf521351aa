// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor doctor` as a user runs it, on whatever machine this is.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

ProcessOutcome Doctor(std::vector<std::string> args) {
  args.insert(args.begin(), {"tools/castor", "doctor"});
  return RunProcess(args);
}

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// Without line ends, which come where a path is long.
std::string OneLine(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c != ' ' && c != '\n') {
      line += c;
    } else if (!line.ends_with(' ')) {
      line += ' ';
    }
  }
  return line;
}

TEST(CastorDoctorTest, LooksAtThisMachine) {
  const TempDir dir;
  const ProcessOutcome page = Doctor({"--nvme", dir.path().string()});
  EXPECT_TRUE(page.exit_code == 0 || page.exit_code == 5) << page.err;
  EXPECT_TRUE(Has(page.out, "Machine     "));
  EXPECT_TRUE(Has(page.out, "locked memory: "));
  EXPECT_TRUE(Has(OneLine(page.out), "folder " + dir.path().string()));
  EXPECT_TRUE(Has(page.out, " block\n"));
  EXPECT_FALSE(Has(page.out, "\x1b"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(CastorDoctorTest, PrintsADocument) {
  const ProcessOutcome outcome = Doctor({"--json"});
  const JsonValue json = ParseJson(outcome.out).value();
  EXPECT_EQ(json["schema"], "castor.doctor/1");
  EXPECT_EQ(outcome.exit_code, json["blocks"].integer() == 0 ? 0 : 5);
  EXPECT_EQ(json["findings"].size(),
            static_cast<size_t>(json["ok"].integer() + json["hurts"].integer() +
                                json["blocks"].integer()));
  EXPECT_GE(json["topology"]["cores"].integer(), 1);
}

TEST(CastorDoctorTest, AFolderThatIsMissingBlocksWithExit5) {
  const TempDir dir;
  const ProcessOutcome outcome = Doctor({"--nvme", dir.File("none")});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_TRUE(Has(OneLine(outcome.out), "blocks folder " + dir.File("none")));
  EXPECT_TRUE(Has(outcome.err, "castor doctor: "));
  EXPECT_TRUE(Has(outcome.err, "folder " + dir.File("none")));
}

TEST(CastorDoctorTest, MistakesEndInASentenceAndTheExitCode) {
  const TempDir dir;
  std::ofstream(dir.File("bad.xml")) << "no topology";
  const struct {
    std::vector<std::string> args;
    int exit_code;
  } kMistakes[] = {{{"--nvm", "x"}, 2},
                   {{"folder"}, 2},
                   {{"--topology", dir.File("none.xml")}, 2},
                   {{"--topology", dir.File("bad.xml")}, 4}};
  for (const auto& mistake : kMistakes) {
    const ProcessOutcome outcome = Doctor(mistake.args);
    EXPECT_EQ(outcome.exit_code, mistake.exit_code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("castor doctor: ")) << outcome.err;
  }
  const ProcessOutcome help = Doctor({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(Has(help.out, "--topology FILE"));
}

}  // namespace
}  // namespace castor
