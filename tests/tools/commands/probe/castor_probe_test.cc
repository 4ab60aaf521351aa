// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// `castor probe` as a user runs it: a process, with buffers so small that it
// takes a second.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "chunk/text/json_value.h"
#include "gtest/gtest.h"
#include "placement/machine/tier_model_file.h"
#include "tests/support/file_text.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

class CastorProbeTest : public testing::Test {
 protected:
  CastorProbeTest() { std::filesystem::create_directory(dir_.File("drive")); }

  static ProcessOutcome Castor(std::vector<std::string> args) {
    args.insert(args.begin(), "tools/castor");
    return RunProcess(args);
  }
  bool DriveIsEmpty() const {
    return std::filesystem::is_empty(dir_.File("drive"));
  }

  const TempDir dir_;
  const std::string machine_ = dir_.File("machine.json");
};

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

TEST_F(CastorProbeTest, WritesAFileThatSearchTakes) {
  const ProcessOutcome page =
      Castor({"probe", "--quick", "--size", "8MiB", "--nvme",
              dir_.File("drive"), "-o", machine_});
  ASSERT_EQ(page.exit_code, 0) << page.err << page.out;
  EXPECT_TRUE(Has(page.out, "simulated device"));
  EXPECT_TRUE(Has(page.out, "NVMe half and half"));
  EXPECT_TRUE(Has(page.out, "AdamW ("));
  EXPECT_TRUE(Has(page.out, "reduce-scatter"));
  EXPECT_TRUE(Has(page.out, "Written"));
  EXPECT_FALSE(Has(page.out, "\x1b"));
  EXPECT_TRUE(DriveIsEmpty());
  EXPECT_TRUE(
      ParseTierModel(FileText(machine_)).value().nvme_mixed.has_value());

  std::ofstream(dir_.File("model.tsv")) << "w\t1000000\tF32\n";
  const ProcessOutcome search =
      Castor({"search", dir_.File("model.tsv"), "--min", "64KiB", "--max",
              "8MiB", "--machine", machine_, "--json"});
  ASSERT_EQ(search.exit_code, 0) << search.err;
  const JsonValue json = ParseJson(search.out).value();
  EXPECT_TRUE(json["machine"].contains("host_to_device"));
  EXPECT_GT(json["best"]["transfer"]["host_to_device_seconds"].real(), 0);
}

TEST_F(CastorProbeTest, PrintsADocument) {
  const ProcessOutcome outcome =
      Castor({"probe", "--quick", "--size", "1MiB", "--json"});
  const JsonValue json = ParseJson(outcome.out).value();
  EXPECT_EQ(json["schema"], "castor.probe/1");
  EXPECT_EQ(json["buffer_bytes"], 1 << 20);
  EXPECT_EQ(json["not_measured"][0]["what"], "NVMe");
  EXPECT_EQ(outcome.exit_code, json["not_measured"].size() == 1 ? 0 : 5);
  EXPECT_EQ(
      ParseTierModel(json["machine"].Dump()).value().memory->bytes_per_second,
      json["rates"][0]["bytes_per_second"].integer());
}

TEST_F(CastorProbeTest, ASignalEndsItWithWhatItHasAndNothingLeft) {
  // Enough to do for minutes.
  RunningProgram program(
      "tools/castor",
      {"probe", "--nvme", dir_.File("drive"), "--size", "8MiB", "-o", machine_},
      dir_.path());
  for (int i = 0; i < 6000 && DriveIsEmpty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_FALSE(DriveIsEmpty());
  program.Signal(SIGINT);
  const ProgramResult run = program.Wait();
  EXPECT_EQ(run.exit_code, 6) << run.err;
  EXPECT_TRUE(Has(run.err, "stopped")) << run.err;
  EXPECT_TRUE(DriveIsEmpty());
}

TEST_F(CastorProbeTest, MistakesEndInASentenceAndTheExitCode) {
  const struct {
    std::vector<std::string> args;
    int exit_code;
    std::string message;
  } kMistakes[] = {{{"--quik"}, 2, "did you mean --quick?"},
                   {{"--size", "1KiB"}, 2, "1MiB is the least"},
                   {{"-o", dir_.File("none/m.json")}, 2, "there is no folder"},
                   {{"--nvme", dir_.File("none")}, 5, "mkdir -p"},
                   {{"machine.json"}, 2, "unexpected argument"}};
  for (const auto& mistake : kMistakes) {
    std::vector<std::string> args = {"probe"};
    args.insert(args.end(), mistake.args.begin(), mistake.args.end());
    const ProcessOutcome outcome = Castor(args);
    EXPECT_EQ(outcome.exit_code, mistake.exit_code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(Has(outcome.err, mistake.message)) << outcome.err;
  }
}

}  // namespace
}  // namespace castor
