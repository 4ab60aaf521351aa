// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_EXAMPLES_TRAIN_GPT_FIXTURE_H_
#define CASTOR_TESTS_TOOLS_EXAMPLES_TRAIN_GPT_FIXTURE_H_

// Runs the example trainer on a model small enough for a blink, in a folder of
// its own.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace castor {

class TrainGptTest : public testing::Test {
 protected:
  TrainGptTest() {
    std::filesystem::create_directory(dir_.File("output"));
    std::filesystem::create_directory(dir_.File("nvme"));
    std::ofstream text(dir_.File("text"));
    for (int i = 0; i < 200; ++i) text << "line " << i * i << " of the text\n";
  }

  static bool Has(const std::vector<std::string>& args,
                  const std::string& flag) {
    return std::find(args.begin(), args.end(), flag) != args.end();
  }
  static std::string Program() { return DataPath("tools/examples/train_gpt"); }
  // A model small enough for a blink; what `more` sets, it sets.
  std::vector<std::string> Args(const std::vector<std::string>& more) const {
    const std::pair<std::string, std::string> small[] = {
        {"--text", dir_.File("text")},
        {"--layers", "1"},
        {"--heads", "2"},
        {"--embd", "64"},
        {"--seq", "16"},
        {"--steps", "3"},
        {"--chunk", "128KiB"}};
    std::vector<std::string> args = more;
    for (const auto& [flag, value] : small) {
      if (Has(more, flag)) continue;
      if (flag == "--chunk" && Has(more, "--layout")) continue;
      args.insert(args.end(), {flag, value});
    }
    return args;
  }
  ProgramResult Run(const std::vector<std::string>& args) const {
    return RunProgramToEnd(Program(), args, dir_.File("output"));
  }
  ProgramResult RunSmall(const std::vector<std::string>& more) const {
    return Run(Args(more));
  }
  // Budgets that leave something for the drive.
  std::vector<std::string> Tight(std::vector<std::string> more) const {
    more.insert(more.end(), {"--device-budget", "512KiB", "--host-budget",
                             "640KiB", "--nvme", dir_.File("nvme")});
    return more;
  }
  void ExpectNothingLeft() const {
    EXPECT_TRUE(std::filesystem::is_empty(dir_.File("nvme")));
  }
  static std::string DigestIn(const std::string& out) {
    const std::string label = "weight digest: ";
    const size_t at = out.find(label);
    return at == std::string::npos ? "" : out.substr(at + label.size(), 16);
  }

  TempDir dir_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_EXAMPLES_TRAIN_GPT_FIXTURE_H_
