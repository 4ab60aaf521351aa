// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/bounded_program.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <string>

namespace castor {
namespace {

constexpr ProgramLimits kLimits = {.time = std::chrono::seconds(20),
                                   .output_bytes = size_t{1} << 20};

ProgramAnswer Shell(const std::string& lines, std::string_view input = {},
                    const ProgramLimits& limits = kLimits) {
  return RunBounded({"sh", "-c", lines}, input, limits);
}

TEST(BoundedProgramTest, AnswersWithOutputCodeAndLastLine) {
  const ProgramAnswer answer =
      Shell("echo out; echo first >&2; printf '  last \\n\\n' >&2; exit 3");
  EXPECT_EQ(answer.end, ProgramEnd::kExited);
  EXPECT_EQ(answer.exit_code, 3);
  EXPECT_EQ(answer.output, "out\n");
  EXPECT_EQ(answer.last_said, "last");
}

TEST(BoundedProgramTest, HandsOverMoreThanAPipeHolds) {
  const std::string input(300'000, 'x');
  EXPECT_EQ(Shell("cat", input).output, input);
  // A program may end without reading all its input.
  EXPECT_EQ(Shell("exit 0", input).exit_code, 0);
}

TEST(BoundedProgramTest, WaitsForAProgramThatClosedItsOutput) {
  EXPECT_EQ(Shell("exec >&- 2>&-; sleep 0.2; exit 4").exit_code, 4);
  EXPECT_EQ(Shell("exec >&- 2>&-; sleep 60", "",
                  {.time = std::chrono::milliseconds(200), .output_bytes = 9})
                .end,
            ProgramEnd::kTooLong);
}

// What the program left behind holds its outputs.
TEST(BoundedProgramTest, TakesTheAnswerWhereADescendantLivesOn) {
  const ProgramAnswer answer = Shell("sleep 60 & echo answer");
  EXPECT_EQ(answer.end, ProgramEnd::kExited);
  EXPECT_EQ(answer.output, "answer\n");
}

TEST(BoundedProgramTest, KeepsTheLastLineOfManyErrors) {
  const ProgramAnswer answer = Shell(
      "i=0; while [ $i -lt 20000 ]; do echo warning $i >&2; "
      "i=$((i+1)); done; echo the end >&2");
  EXPECT_EQ(answer.exit_code, 0);
  EXPECT_EQ(answer.last_said, "the end");
}

TEST(BoundedProgramTest, AsksThePythonThatIsNamedElseTheWheelsElseThePaths) {
  setenv("CASTOR_PYTHON", "/venv/python", 1);
  EXPECT_EQ(PythonToAsk("/other/python"), "/other/python");
  EXPECT_EQ(PythonToAsk(), "/venv/python");
  setenv("CASTOR_PYTHON", "", 1);
  EXPECT_EQ(PythonToAsk(), "python3");
  unsetenv("CASTOR_PYTHON");
  EXPECT_EQ(PythonToAsk(), "python3");
}

}  // namespace
}  // namespace castor
