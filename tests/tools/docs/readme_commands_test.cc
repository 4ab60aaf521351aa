// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Runs the commands of the front page, of the reference and of the first steps.
// Each page has a scratch folder of the repository's shape, and each command a
// shell, in the page's order. Of a block under
//
//   <!-- tested -->                   each command ends with exit code 0 and
//                                     prints what the page shows ("..." stands
//                                     for any lines)
//   <!-- tested, numbers vary -->     the same, any number being as good as
//                                     another
//   <!-- run by CI -->                nothing is run: a test cannot call the
//                                     script that runs it
//
// and a console block under none of them is an error.

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/docs/markdown.h"
#include "tests/tools/run_process.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

// A folder as a clone is after the build, as far as the page's commands go.
void MakeClone(const fs::path& clone) {
  const fs::path built = fs::current_path();
  const std::string files[][2] = {
      {"bazel-bin/tools/castor", "tools/castor"},
      {"bazel-bin/tools/examples/readme_engine",
       "tools/examples/readme_engine"},
      {"bazel-bin/tools/examples/train_gpt", "tools/examples/train_gpt"},
      {"bazel-bin/tools/examples/train_gpt_mpi",
       "tools/examples/train_gpt_mpi"},
      {"tools/examples/traces/gpt_25m.json",
       "tools/examples/traces/gpt_25m.json"},
      {"tools/examples/traces/machine.json",
       "tools/examples/traces/machine.json"},
      {"tools/models/configs/gpt2-xl/config.json",
       "tools/models/configs/gpt2-xl/config.json"},
      {"tools/models/configs/llama-3-8b/config.json",
       "tools/models/configs/llama-3-8b/config.json"},
  };
  for (const auto& [there, here] : files) {
    ASSERT_TRUE(fs::exists(built / here)) << here;
    fs::create_directories((clone / there).parent_path());
    fs::create_symlink(built / here, clone / there);
  }
}

// Every number becomes #, with the spaces before it that align it.
std::string WithoutNumbers(const std::string& line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(line[i]))) {
      text += line[i];
      continue;
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += " #";
    const size_t end = line.find_first_not_of("0123456789.,", i);
    i = std::min(end, line.size()) - 1;
  }
  return text;
}

std::vector<std::string> WithoutNumbers(std::vector<std::string> lines) {
  for (std::string& line : lines) {
    if (line != "...") line = WithoutNumbers(line);
  }
  return lines;
}

class PageCommandsTest : public testing::TestWithParam<std::string> {};

TEST_P(PageCommandsTest, EndWellAndPrintWhatThePageShows) {
  TempDir clone;
  MakeClone(clone.path());
  // mpirun asks root for it, and names its sockets by TMPDIR, which may not be
  // long.
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("TMPDIR", "/tmp", 1);
  int run = 0;
  for (const CodeBlock& block : CodeBlocks(FileText(GetParam()))) {
    if (block.language != "console" || block.comment == "run by CI") continue;
    const bool numbers_vary = block.comment == "tested, numbers vary";
    ASSERT_TRUE(numbers_vary || block.comment == "tested")
        << "line " << block.line << " does not say how it is tested";
    for (const ConsoleCommand& command : ConsoleCommands(block.lines)) {
      SCOPED_TRACE("line " + std::to_string(block.line) + ": " +
                   command.command);
      ++run;
      const ProcessOutcome outcome = RunProcess(
          {"/bin/bash", "-c",
           "cd '" + clone.path().string() + "' && set -e\n" + command.command});
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      std::vector<std::string> expected = command.output;
      std::vector<std::string> output = Lines(outcome.out);
      if (numbers_vary) {
        expected = WithoutNumbers(expected);
        output = WithoutNumbers(output);
      }
      EXPECT_TRUE(MatchesOutput(expected, output)) << outcome.out;
    }
  }
  EXPECT_GE(run, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Pages, PageCommandsTest,
    testing::Values("README.md", "docs/reference.md",
                    "docs/getting_started.md"),
    [](const testing::TestParamInfo<std::string>& page) {
      return std::filesystem::path(page.param).stem().string();
    });

}  // namespace
}  // namespace castor
