// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <utility>

#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

bool LooksLikeFlag(const std::string& arg) {
  return arg.size() > 1 && arg.front() == '-';
}

std::string FlagName(const std::string& arg) {
  return arg.substr(0, arg.find('='));
}

std::vector<std::string> KnownFlags(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // RefuseFlag
    for (const std::string& name : option->get_lnames()) {
      known.push_back("--" + name);
    }
  }
  return known;
}

Status WithHelpHint(const CLI::App& app, std::string message) {
  return InvalidArgument(
      fmt::format("{} (flags and values: {} --help)", message, app.get_name()));
}

// What was on the command line that no flag or argument took.
std::optional<Status> LeftOver(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining();
  const auto flag = std::find_if(rest.begin(), rest.end(), LooksLikeFlag);
  if (flag != rest.end()) {
    const std::string name = FlagName(*flag);
    return WithHelpHint(app, fmt::format("unknown flag {}{}", Quoted(name),
                                         SuggestName(name, KnownFlags(app))));
  }
  if (!rest.empty()) {
    return WithHelpHint(app,
                        fmt::format("unexpected argument {}; give one value "
                                    "for each flag and argument",
                                    Quoted(rest.front())));
  }
  return std::nullopt;
}

// CLI11 throws one type for a missing value, for one too many, and for a
// repeated flag.
Status WrongCount(const CLI::App& app, const CLI::ArgumentMismatch& error) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 1) {
      return WithHelpHint(app,
                          fmt::format("{} is given {} times; give it once",
                                      option->get_name(), option->count()));
    }
  }
  const std::string_view what = error.what();
  constexpr std::string_view kOverride =
      " was given a disallowed flag override";
  if (what.ends_with(kOverride)) {
    return WithHelpHint(
        app, fmt::format("--{} takes no value",
                         what.substr(0, what.size() - kOverride.size())));
  }
  return WithHelpHint(
      app, fmt::format("{} needs a value", what.substr(0, what.find(':'))));
}

// `--flag=` would make CLI11 take the next argument as the value.
std::optional<Status> EmptyValue(const CLI::App& app,
                                 const std::vector<std::string>& args) {
  for (const std::string& arg : args) {
    if (arg == "--") return std::nullopt;
    if (arg.starts_with("--") && arg.ends_with('=')) {
      return WithHelpHint(
          app,
          fmt::format("{} has no value after the equals sign", Quoted(arg)));
    }
  }
  return std::nullopt;
}

}  // namespace

CommandLine::CommandLine(const std::string& program, const std::string& summary)
    : app_(std::make_unique<CLI::App>(summary, program)) {}

CommandLine::~CommandLine() = default;

std::string CommandLine::Help() const { return app_->help(); }

std::vector<FlagHelp> CommandLine::Flags() const {
  std::vector<FlagHelp> flags;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    if (option->get_group().empty()) continue;  // RefuseFlag
    FlagHelp flag{.form = option->get_type_name(),
                  .help = option->get_description(),
                  .positional = option->get_positional(),
                  .required = option->get_required()};
    if (flag.positional) flag.names.push_back(option->get_name());
    for (const std::string& name : option->get_snames()) {
      flag.names.push_back("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      flag.names.push_back("--" + name);
    }
    flags.push_back(std::move(flag));
  }
  return flags;
}

std::string CommandLine::Footer() const { return app_->get_footer(); }

// What is wrong with a value crosses the parser and is caught in ParseFlags, so
// nothing else is ever thrown through a door.
void DeclareOption(CLI::App& app, const Option& row,
                   std::vector<std::string>* given) {
  if (row.flag.empty()) return;
  const auto read = [row, given](const std::string& text) {
    // A shell variable that is not set would silently leave the flag away.
    if (row.type == OptionType::kText && text.empty()) {
      throw CLI::ValidationError(
          row.flag, "its value is empty; give one, or leave the flag away");
    }
    const Status parsed = ParseOption(row, text);
    if (!parsed.ok()) {
      throw CLI::ValidationError(row.flag, std::string(parsed.message()));
    }
    if (given != nullptr) given->push_back(row.flag);
  };
  if (row.type == OptionType::kSwitch) {
    app.add_flag_callback(
           row.flag, [read] { read(""); }, OptionHelp(row))
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
        ->disable_flag_override();
    return;
  }
  CLI::Option* const option =
      app.add_option_function<std::string>(row.flag, read, OptionHelp(row));
  option->type_name(OptionForm(row));
  // Read one by one as they come: as a list, CLI11 would take [a,b] apart.
  if (row.type == OptionType::kList) option->trigger_on_parse();
}

void DeclareOptions(CLI::App& app, const OptionTable& table,
                    std::vector<std::string>* given) {
  for (const Option& row : table.rows()) DeclareOption(app, row, given);
}

void AddPositional(CLI::App& app, const std::string& name, std::string* value,
                   const std::string& help) {
  app.add_option(name, *value, help)->required()->type_name("");
}

void AddOptionalPositional(CLI::App& app, const std::string& name,
                           std::string* value, const std::string& help) {
  app.add_option(name, *value, help)->type_name("");
}

bool IsGiven(const CLI::App& app, std::string_view flag) {
  const CLI::Option* option = app.get_option_no_throw(std::string(flag));
  return option != nullptr && option->count() > 0;
}

void SetHelpFooter(CLI::App& app, const std::string& text) { app.footer(text); }

Result<ParseOutcome> ParseFlags(CLI::App& app,
                                const std::vector<std::string>& args) {
  app.allow_extras();
  if (std::optional<Status> empty = EmptyValue(app, args)) return *empty;
  std::optional<Status> failure;
  try {
    // CLI11 takes arguments from the back.
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    return ParseOutcome::kHelpAsked;
  } catch (const CLI::ArgumentMismatch& error) {
    failure = WrongCount(app, error);
  } catch (const CLI::RequiredError& error) {
    const std::string_view what = error.what();
    failure = WithHelpHint(
        app, fmt::format("{} is missing", what.substr(0, what.find(' '))));
  } catch (const CLI::ParseError& error) {
    failure = WithHelpHint(app, error.what());
  }
  // An unknown flag is the likeliest reason for whatever else is wrong.
  if (std::optional<Status> left_over = LeftOver(app)) return *left_over;
  if (failure) return *failure;
  return ParseOutcome::kRun;
}

}  // namespace castor
