// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <ostream>

#include "chunk/base/status.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"
#include "offload/lanes/start_thread.h"
#include "tools/cli/flags.h"
#include "tools/cli/manual.h"
#include "tools/cli/process_limits.h"
#include "tools/cli/stop_signals.h"

namespace castor {
namespace {

constexpr std::string_view kExitCodes =
    "0 done, 1 internal error, 2 wrong usage, 3 the answer is no,\n"
    "4 malformed input, 5 this machine lacks something, 6 stopped early\n";

std::string Overview(const Program& program) {
  size_t width = 0;
  for (const auto& command : program.commands) {
    width = std::max(width, command->name().size());
  }
  std::string text = fmt::format("{}\n\nusage: {} COMMAND ...\n\ncommands:\n",
                                 program.summary, program.name);
  for (const auto& command : program.commands) {
    text += fmt::format("  {:<{}}  {}\n", command->name(), width,
                        command->summary());
  }
  text += fmt::format(
      "\n{0} help COMMAND   what a command takes and prints\n"
      "{0} --version      the version\n\n",
      program.name);
  const size_t end = kExitCodes.find('\n') + 1;
  return text += fmt::format("exit: {}      {}", kExitCodes.substr(0, end),
                             kExitCodes.substr(end));
}

Result<Command*> FindCommand(const Program& program, const std::string& name) {
  std::vector<std::string> known;
  for (const auto& command : program.commands) {
    if (command->name() == name) return command.get();
    known.emplace_back(command->name());
  }
  return InvalidArgument(fmt::format("unknown command {}{} ({} help)",
                                     Quoted(name), SuggestName(name, known),
                                     program.name));
}

std::unique_ptr<CommandLine> Declared(const Program& program,
                                      Command& command) {
  auto line = std::make_unique<CommandLine>(
      fmt::format("{} {}", program.name, command.name()),
      std::string(command.summary()));
  command.Declare(line->app());
  return line;
}

// Reads the flags of `command` and runs it, or prints its help.
Status RunCommand(const Program& program, Command& command,
                  const std::vector<std::string>& args,
                  const Console& console) {
  const std::unique_ptr<CommandLine> line = Declared(program, command);
  CASTOR_ASSIGN_OR_RETURN(const ParseOutcome outcome,
                          ParseFlags(line->app(), args));
  if (outcome == ParseOutcome::kHelpAsked) {
    console.out << line->Help();
    return OkStatus();
  }
  const SignalWords words(fmt::format("{} {}", program.name, command.name()));
  return command.Run(console);
}

// `help --man` and `help --completion`, by which installing makes its files;
// the overview does not show them.
Status Manual(const Program& program, const std::vector<std::string>& args,
              const Console& console) {
  ProgramManual manual{.name = program.name,
                       .version = program.version,
                       .summary = program.summary,
                       .exit_codes = std::string(kExitCodes),
                       .commands = {}};
  for (const auto& command : program.commands) {
    const std::unique_ptr<CommandLine> line = Declared(program, *command);
    manual.commands.push_back({.name = std::string(command->name()),
                               .summary = std::string(command->summary()),
                               .flags = line->Flags(),
                               .footer = line->Footer()});
  }
  if (args.front() == "--completion") {
    if (args.size() != 2 || args[1] != "bash") {
      return InvalidArgument("help --completion takes the word bash");
    }
    console.out << BashCompletion(manual);
    return OkStatus();
  }
  if (args.size() == 1) {
    console.out << ProgramPage(manual);
    return OkStatus();
  }
  if (args.size() > 2) {
    return InvalidArgument("help --man takes one command at most");
  }
  CASTOR_RETURN_IF_ERROR(FindCommand(program, args[1]).status());
  for (const CommandManual& command : manual.commands) {
    if (command.name == args[1]) console.out << CommandPage(manual, command);
  }
  return OkStatus();
}

Status Help(const Program& program, const std::vector<std::string>& args,
            const Console& console) {
  if (args.empty()) {
    console.out << Overview(program);
    return OkStatus();
  }
  if (args.front() == "--man" || args.front() == "--completion") {
    return Manual(program, args, console);
  }
  if (args.size() > 1) {
    return InvalidArgument(
        fmt::format("help takes one command, not {}", args.size()));
  }
  CASTOR_ASSIGN_OR_RETURN(Command* const command,
                          FindCommand(program, args.front()));
  return RunCommand(program, *command, {"--help"}, console);
}

struct Ended {
  std::string who;  // the program, or the program and its command
  Status status;
};

Ended Dispatch(const Program& program, const std::vector<std::string>& args,
               const Console& console) {
  if (args.empty()) {
    console.err << Overview(program) << '\n';
    return {program.name,
            InvalidArgument(fmt::format(
                "a command is missing; {} help says which there are",
                program.name))};
  }
  const std::string& first = args.front();
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (first == "--version" && rest.empty()) {
    console.out << program.name << ' ' << program.version << '\n';
    return {program.name, OkStatus()};
  }
  if (first == "help" || first == "--help" || first == "-h") {
    return {program.name, Help(program, rest, console)};
  }
  if (first.starts_with("-")) {
    const std::vector<std::string> known = {"--version", "--help"};
    return {program.name,
            InvalidArgument(fmt::format(
                "unknown flag {}{} (flags come after the command; {} help)",
                Quoted(first), SuggestName(first, known), program.name))};
  }
  const Result<Command*> command = FindCommand(program, first);
  if (!command.ok()) return {program.name, command.status()};
  return {fmt::format("{} {}", program.name, first),
          RunCommand(program, **command, rest, console)};
}

}  // namespace

int RunProgram(const Program& program, const std::vector<std::string>& args,
               const Console& console) {
  Ended ended{program.name, OkStatus()};
  // The standard library and the parsers below throw where memory ends.
  try {
    ended.status = PrepareForLimits(program.name);
    if (ended.status.ok()) ended = Dispatch(program, args, console);
    // A partial result counts only where it arrives, too.
    const bool has_result =
        ended.status.ok() || ended.status.code() == ErrorCode::kStoppedEarly;
    const Status flushed = FlushOutput(console);
    if (has_result && !flushed.ok()) ended.status = flushed;
  } catch (const std::bad_alloc&) {
    ended.status = Unavailable(
        "memory is exhausted; close other programs or raise the limit");
  } catch (const ThreadLimit& limit) {
    ended.status = limit.status();
  } catch (const std::exception& error) {
    ended.status =
        Internal(fmt::format("internal error: {}; please report it with the "
                             "command line",
                             error.what()));
  }
  return ReportStatus(ended.status, ended.who, console);
}

}  // namespace castor
