// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The command after "Next" runs as it is printed, and means what was asked for
// before it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "chunk/text/json_value.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kModel[] = "tools/models/configs/gpt2-xl/config.json";

// What stands after "Next" up to the words that explain it; "" where nothing
// does.
std::string NextCommand(const std::string& page) {
  const std::string label = "\nNext ";
  const size_t at = page.find(label);
  if (at == page.npos) return "";
  const size_t begin = page.find_first_not_of(' ', at + label.size());
  const std::string line = page.substr(begin, page.find('\n', begin) - begin);
  return line.substr(0, line.find("   "));
}

class NextLineTest : public testing::Test {
 protected:
  // As somebody pastes it, with `more` behind; what it would write goes to a
  // folder of the test's.
  ProcessOutcome Paste(std::string command, const std::string& more = "") {
    EXPECT_THAT(command, StartsWith("castor "));
    if (const size_t out = command.find(" -o "); out != command.npos) {
      command.resize(out);
      command += " -o " + dir_.File("written.json");
    }
    return RunProcess({"/bin/sh", "-c", "tools/" + command + more});
  }

  // What a command found, apart from where it was written to.
  static JsonValue Found(const std::string& document, const char* what) {
    const Result<JsonValue> json = ParseJson(document);
    EXPECT_TRUE(json.ok()) << document;
    return json.ok() ? (*json)[what] : JsonValue();
  }

  const TempDir dir_;
};

TEST_F(NextLineTest, OfASearchKeepsWhatWasAskedFor) {
  const std::vector<std::string> asked = {
      "tools/castor", "search",  kModel,
      "--world",      "4",       "--dtype",
      "bf16",         "--order", "natural",
      "--freeze",     "*.h.1.*", "--align",
      "128",          "--min",   "16MiB",
      "--max",        "96MiB",   "--device-budget",
      "8GiB"};
  const ProcessOutcome page = RunProcess(asked);
  ASSERT_EQ(page.exit_code, 0) << page.err;
  std::vector<std::string> json = asked;
  json.push_back("--json");
  const std::string before = RunProcess(json).out;
  const std::string next = NextCommand(page.out);
  const ProcessOutcome pasted = Paste(next, " --json");
  ASSERT_EQ(pasted.exit_code, 0) << next << '\n' << pasted.err;
  for (const char* part : {"model", "options", "best", "recommended"}) {
    EXPECT_EQ(Found(pasted.out, part), Found(before, part)) << part << next;
  }
}

TEST_F(NextLineTest, OfAPlanKeepsWhatWasAskedFor) {
  const std::vector<std::string> asked = {"tools/castor",
                                          "plan",
                                          kModel,
                                          "--world",
                                          "4",
                                          "--dtype",
                                          "bf16",
                                          "--order",
                                          "natural",
                                          "--freeze",
                                          "*.h.1.*",
                                          "--stage",
                                          "2",
                                          "--clip",
                                          "0",
                                          "--optimizer",
                                          "lion",
                                          "--device-budget",
                                          "9GiB",
                                          "--host-budget",
                                          "20GiB",
                                          "--nvme",
                                          "40GiB",
                                          "--place",
                                          "host:*wte*,state=param",
                                          "--limit",
                                          "exp_avg@host=1GiB",
                                          "--micro-batches",
                                          "3",
                                          "--prefetch",
                                          "2",
                                          "--working-set",
                                          "module",
                                          "--policy",
                                          "planned"};
  const ProcessOutcome page = RunProcess(asked);
  ASSERT_EQ(page.exit_code, 0) << page.out << page.err;
  std::vector<std::string> json = asked;
  json.push_back("--json");
  const std::string before = RunProcess(json).out;
  const std::string next = NextCommand(page.out);
  EXPECT_THAT(next, HasSubstr(" -o plan.json"));
  const ProcessOutcome pasted = Paste(next, " --json");
  ASSERT_EQ(pasted.exit_code, 0) << next << '\n' << pasted.err;
  for (const char* part :
       {"model", "configuration", "tiers", "homes", "step", "certificate"}) {
    EXPECT_EQ(Found(pasted.out, part), Found(before, part)) << part << next;
  }
}

}  // namespace
}  // namespace castor
