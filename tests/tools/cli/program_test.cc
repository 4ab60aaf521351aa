// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "tools/cli/command.h"
#include "tools/cli/console.h"
#include "tools/cli/flags.h"

namespace castor {
namespace {

using testing::HasSubstr;

// A command that does what the test tells it.
class ScriptedCommand final : public Command {
 public:
  ScriptedCommand(std::string name, std::function<Status(const Console&)> run)
      : name_(std::move(name)), run_(std::move(run)) {}

  std::string_view name() const override { return name_; }
  std::string_view summary() const override { return "does as told"; }
  void Declare(CLI::App& app) override {
    AddSwitch(app, "--json", &json_, "print JSON");
  }
  Status Run(const Console& console) override { return run_(console); }

 private:
  std::string name_;
  std::function<Status(const Console&)> run_;
  bool json_ = false;
};

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

Outcome RunTool(const std::vector<std::string>& args) {
  Program program{
      .name = "tool", .version = "1.2.3", .summary = "A tool.", .commands = {}};
  auto add = [&](std::string name, std::function<Status(const Console&)> run) {
    program.commands.push_back(
        std::make_unique<ScriptedCommand>(std::move(name), std::move(run)));
  };
  add("greet", [](const Console& console) {
    console.out << "hello\n";
    return OkStatus();
  });
  add("refuse", [](const Console&) { return Infeasible("3 GiB do not fit"); });
  add("exhaust", [](const Console&) -> Status { throw std::bad_alloc(); });
  add("break",
      [](const Console&) -> Status { throw std::logic_error("oops"); });
  std::ostringstream out, err;
  const int code = RunProgram(program, args, {.out = out, .err = err});
  return {code, out.str(), err.str()};
}

TEST(ProgramTest, RunsACommand) {
  const Outcome outcome = RunTool({"greet", "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "hello\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(ProgramTest, TurnsAFailureIntoItsExitCode) {
  const Outcome outcome = RunTool({"refuse"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "tool refuse: 3 GiB do not fit\n");
}

TEST(ProgramTest, PrintsTheVersion) {
  EXPECT_EQ(RunTool({"--version"}).out, "tool 1.2.3\n");
}

TEST(ProgramTest, HelpsWithAllCommandsOrOne) {
  for (const std::string spelling : {"help", "--help", "-h"}) {
    const Outcome all = RunTool({spelling});
    EXPECT_EQ(all.exit_code, 0);
    EXPECT_THAT(all.out, HasSubstr("greet    does as told"));
    EXPECT_EQ(all.err, "");
  }
  const Outcome one = RunTool({"help", "greet"});
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_THAT(one.out, HasSubstr("--json"));
  EXPECT_EQ(one.out, RunTool({"greet", "--help"}).out);
}

// What is installed: pages of the manual, and the completion of bash.
TEST(ProgramTest, MakesItsManualOfTheTableOfFlags) {
  const Outcome page = RunTool({"help", "--man", "greet"});
  EXPECT_EQ(page.exit_code, 0);
  EXPECT_THAT(page.out, HasSubstr(".TH TOOL\\-GREET 1"));
  EXPECT_THAT(page.out, HasSubstr("does as told"));
  EXPECT_THAT(page.out, HasSubstr("\\fB\\-\\-json\\fR\nprint JSON"));
  EXPECT_THAT(page.out, HasSubstr("4 malformed input"));
  const Outcome all = RunTool({"help", "--man"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_THAT(all.out, HasSubstr("\\fBgreet\\fR\ndoes as told"));
  const Outcome completion = RunTool({"help", "--completion", "bash"});
  EXPECT_EQ(completion.exit_code, 0);
  EXPECT_THAT(completion.out, HasSubstr("greet:*)"));
  EXPECT_THAT(completion.out, HasSubstr("--json"));
  EXPECT_EQ(RunTool({"help", "--completion", "fish"}).exit_code, 2);
  EXPECT_EQ(RunTool({"help", "--man", "none"}).exit_code, 2);
}

TEST(ProgramTest, RefusesWhatItDoesNotKnow) {
  const Outcome none = RunTool({});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("a command is missing"));
  const Outcome command = RunTool({"gret"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_THAT(command.err, HasSubstr("\"gret\"; did you mean greet?"));
  const Outcome help = RunTool({"help", "gret"});
  EXPECT_EQ(help.exit_code, 2);
  EXPECT_THAT(help.err, HasSubstr("did you mean greet?"));
  const Outcome flag = RunTool({"--verison"});
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_THAT(flag.err, HasSubstr("did you mean --version?"));
  EXPECT_EQ(RunTool({"greet", "--jsno"}).exit_code, 2);
  EXPECT_EQ(RunTool({"help", "greet", "refuse"}).exit_code, 2);
}

TEST(ProgramTest, LetsNoExceptionOut) {
  EXPECT_EQ(RunTool({"exhaust"}).exit_code, 5);
  const Outcome broken = RunTool({"break"});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, HasSubstr("oops"));
}

TEST(ProgramTest, FailsWhereTheResultCannotBeWritten) {
  std::ofstream full("/dev/full");
  if (!full) GTEST_SKIP() << "this machine has no /dev/full";
  const Program program{
      .name = "tool", .version = "1", .summary = "A tool.", .commands = {}};
  std::ostringstream err;
  EXPECT_EQ(RunProgram(program, {"help"}, {.out = full, .err = err}), 5);
}

}  // namespace
}  // namespace castor
