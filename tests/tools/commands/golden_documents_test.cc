// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What plan, explain and simulate print of models and traces that people have,
// as it was. Numbers follow from flags and files alone, on any machine.

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden/golden.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

constexpr char kGpt2Xl[] = "tools/models/configs/gpt2-xl/config.json";
constexpr char kLlama[] = "tools/models/configs/llama-3-8b/config.json";
constexpr char kTrace[] = "tools/examples/traces/gpt_25m.json";
constexpr char kMachine[] = "tests/tools/commands/golden/machine.json";

struct Asked {
  std::string name;
  std::vector<std::string> args;
};

std::vector<Asked> Documents() {
  const std::vector<std::string> machine = {"--machine", kMachine, "--plain"};
  std::vector<Asked> asked = {
      {"gpt2-xl, one rank",
       {"plan", kGpt2Xl, "--device-budget", "12GiB", "--host-budget", "48GiB",
        "--batch", "4", "--seq", "1024", "--compute", "400ms"}},
      {"gpt2-xl, sgd",
       {"plan", kGpt2Xl, "--device-budget", "4GiB", "--host-budget", "64GiB",
        "--optimizer", "sgd", "--batch", "1", "--seq", "256", "--compute",
        "100ms"}},
      {"llama-3-8b, two ranks, drives",
       {"plan", kLlama, "--dtype", "bf16", "--world", "2", "--device-budget",
        "20GiB", "--host-budget", "40GiB", "--nvme", "200GiB", "--batch", "1",
        "--seq", "2048", "--compute", "2s"}},
      {"llama-3-8b, updates in the backward",
       {"plan", kLlama, "--dtype", "bf16", "--device-budget", "40GiB",
        "--host-budget", "40GiB", "--nvme", "200GiB", "--batch", "1", "--seq",
        "2048", "--compute", "2s", "--update-in-backward"}},
      {"llama-3-8b, micro-batches in fp32",
       {"plan",          kLlama,   "--dtype",          "bf16",
        "--world",       "8",      "--ranks-per-host", "8",
        "--stage",       "2",      "--device-budget",  "60GiB",
        "--host-budget", "128GiB", "--batch",          "1",
        "--seq",         "2048",   "--micro-batches",  "4",
        "--grad-mode",   "fp32",   "--compute",        "2s"}},
      {"gpt2-xl, why",
       {"plan", kGpt2Xl, "--device-budget", "12GiB", "--host-budget", "48GiB",
        "--explain", "*.wte.weight"}},
      {"llama-3-8b, does not fit",
       {"plan", kLlama, "--dtype", "bf16", "--device-budget", "6GiB",
        "--host-budget", "16GiB"}},
      {"trace",
       {"simulate", kTrace, "--device-budget", "48MiB", "--host-budget",
        "1GiB"}},
      {"trace, swept",
       {"simulate", kTrace, "--host-budget", "1GiB", "--sweep",
        "device-budget=32MiB..128MiB", "--points", "5"}},
  };
  for (Asked& one : asked) {
    one.args.insert(one.args.begin(), "tools/castor");
    one.args.insert(one.args.end(), machine.begin(), machine.end());
  }
  return asked;
}

TEST(GoldenDocumentsTest, AreAsTheyWere) {
  std::string text;
  for (const auto& [name, args] : Documents()) {
    const ProcessOutcome outcome = RunProcess(args);
    EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 3)
        << name << ": " << outcome.err;
    text += "= " + name + ", ends with " + std::to_string(outcome.exit_code) +
            "\n" + outcome.out;
  }
  ExpectGolden("tests/tools/commands/golden/documents.txt", text);
}

}  // namespace
}  // namespace castor
