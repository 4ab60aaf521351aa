// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Each output flag of each command, given each input of the command.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

using testing::HasSubstr;

struct Command {
  std::string name;
  std::string argument;  // as messages name what comes first
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> more;  // without which an output makes no sense
};

std::vector<Command> Commands() {
  return {
      {"search",
       "MODEL",
       {"--trace", "--machine"},
       {"-o"},
       {"--order", "trace", "--trace", "step"}},
      {"plan",
       "MODEL",
       {"--layout", "--machine", "--trace", "--compare"},
       {"-o", "--html"},
       {}},
      {"simulate",
       "TRACE",
       {"--layout", "--machine"},
       {"--svg"},
       {"--device-budget", "1GiB", "--sweep", "host-budget=1GiB..2GiB",
        "--machine", "machine"}},
      {"report", "FILE", {}, {"--html", "--chrome", "--memory-viz"}, {}},
  };
}

TEST(CastorOutputsTest, NoInputIsOverwritten) {
  const TempDir dir;
  const std::string file = dir.File("input");
  std::ofstream(file) << "of the user";
  int tried = 0;
  for (const Command& command : Commands()) {
    for (const std::string& output : command.outputs) {
      std::vector<std::string> inputs = command.inputs;
      inputs.push_back(command.argument);
      for (const std::string& input : inputs) {
        const bool first = input == command.argument;
        std::vector<std::string> words = {"tools/castor", command.name,
                                          first ? file : dir.File("another")};
        if (!first) words.insert(words.end(), {input, file});
        // What the flag under test does not say itself.
        for (size_t i = 0; i < command.more.size(); i += 2) {
          if (command.more[i] == input) continue;
          words.insert(words.end(), {command.more[i], command.more[i + 1]});
        }
        words.insert(words.end(), {output, file});
        const ProcessOutcome outcome = RunProcess(words);
        EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
        EXPECT_THAT(outcome.err,
                    HasSubstr("would overwrite what " + input + " names"))
            << command.name << " " << output;
        EXPECT_EQ(FileText(file), "of the user");
        ++tried;
      }
    }
  }
  EXPECT_EQ(tried, 3 + 2 * 5 + 3 + 3);
}

TEST(CastorOutputsTest, TwoOutputsAreTwoFiles) {
  const TempDir dir;
  const ProcessOutcome outcome =
      RunProcess({"tools/castor", "plan", dir.File("model"), "-o",
                  dir.File("out"), "--html", dir.File("out")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("-o and --html would both be written"));
}

}  // namespace
}  // namespace castor
