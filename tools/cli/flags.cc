// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <string_view>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/quote.h"
#include "tools/cli/size_text.h"

namespace castor {
namespace {

// What went wrong with the value of a flag. It crosses the parser and is caught
// in ParseFlags, so nothing else is ever thrown through a door.
CLI::ValidationError BadValue(const std::string& flag, std::string_view why) {
  return CLI::ValidationError(flag, std::string(why));
}

// `read` returns what is wrong with the text, empty where nothing is.
CLI::Option* AddValueFlag(CLI::App& app, const std::string& name,
                          const std::string& type, const std::string& help,
                          std::function<std::string(const std::string&)> read) {
  return app
      .add_option_function<std::string>(
          name,
          [name, read = std::move(read)](const std::string& text) {
            const std::string wrong = read(text);
            if (!wrong.empty()) throw BadValue(name, wrong);
          },
          help)
      ->type_name(type);
}

std::string ReadSize(const std::string& text, Bytes* size) {
  const Result<Bytes> parsed = ParseSize(text);
  if (!parsed.ok()) return std::string(parsed.status().message());
  *size = *parsed;
  return {};
}

std::string ReadInt(const std::string& text, int64_t least, int64_t most,
                    int64_t* value) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < least || number > most) {
    return fmt::format("{} is not a whole number from {} to {}", Quoted(text),
                       least, most);
  }
  *value = number;
  return {};
}

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

void AddSizeFlag(CLI::App& app, const std::string& name, Bytes* value,
                 const std::string& help) {
  AddValueFlag(app, name, "SIZE", help, [value](const std::string& text) {
    return ReadSize(text, value);
  });
}

void AddSizeFlag(CLI::App& app, const std::string& name,
                 std::optional<Bytes>* value, const std::string& help) {
  AddValueFlag(app, name, "SIZE", help, [value](const std::string& text) {
    Bytes size;
    const std::string wrong = ReadSize(text, &size);
    if (wrong.empty()) *value = size;
    return wrong;
  });
}

void AddIntFlag(CLI::App& app, const std::string& name, int64_t* value,
                int64_t least, int64_t most, const std::string& help) {
  AddValueFlag(app, name, "N", help, [=](const std::string& text) {
    return ReadInt(text, least, most, value);
  });
}

void AddIntFlag(CLI::App& app, const std::string& name,
                std::optional<int64_t>* value, int64_t least, int64_t most,
                const std::string& help) {
  AddValueFlag(app, name, "N", help, [=](const std::string& text) {
    int64_t number = 0;
    const std::string wrong = ReadInt(text, least, most, &number);
    if (wrong.empty()) *value = number;
    return wrong;
  });
}

void AddRealFlag(CLI::App& app, const std::string& name, double* value,
                 double least, double most, const std::string& help) {
  AddValueFlag(
      app, name, "X", help, [=](const std::string& text) -> std::string {
        double number = 0;
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, number);
        if (error != std::errc() || stop != end || !std::isfinite(number) ||
            number < least || number > most) {
          return fmt::format("{} is not a number from {} to {}", Quoted(text),
                             least, most);
        }
        *value = number;
        return {};
      });
}

void AddChoiceFlag(CLI::App& app, const std::string& name, std::string* value,
                   const std::vector<std::string>& choices,
                   const std::string& help) {
  AddValueFlag(
      app, name, fmt::format("{}", fmt::join(choices, "|")), help,
      [value, choices](const std::string& text) -> std::string {
        if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
          return fmt::format("{} is not a known value{}", Quoted(text),
                             SuggestName(text, choices));
        }
        *value = text;
        return {};
      });
}

void AddTextFlag(CLI::App& app, const std::string& name, std::string* value,
                 const std::string& help, const std::string& kind) {
  AddValueFlag(app, name, kind, help,
               [value](const std::string& text) -> std::string {
                 *value = text;
                 return {};
               });
}

void AddTextFlag(CLI::App& app, const std::string& name,
                 std::optional<std::string>* value, const std::string& help,
                 const std::string& kind) {
  AddValueFlag(app, name, kind, help,
               [value](const std::string& text) -> std::string {
                 *value = text;
                 return {};
               });
}

void AddTextListFlag(CLI::App& app, const std::string& name,
                     std::vector<std::string>* values,
                     const std::string& help) {
  // Read one by one as they come: as a list, CLI11 would take [a,b] apart.
  AddValueFlag(app, name, "TEXT", help,
               [values](const std::string& text) -> std::string {
                 values->push_back(text);
                 return {};
               })
      ->trigger_on_parse();
}

void AddSwitch(CLI::App& app, const std::string& name, bool* value,
               const std::string& help) {
  app.add_flag_callback(
         name, [value] { *value = true; }, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->disable_flag_override();
}

void AddPositional(CLI::App& app, const std::string& name, std::string* value,
                   const std::string& help) {
  app.add_option(name, *value, help)->required()->type_name("");
}

void AddOptionalPositional(CLI::App& app, const std::string& name,
                           std::string* value, const std::string& help) {
  app.add_option(name, *value, help)->type_name("");
}

void SetHelpFooter(CLI::App& app, const std::string& text) { app.footer(text); }

void RefuseFlag(CLI::App& app, const std::string& name,
                const std::string& instead) {
  app.add_option_function<std::vector<std::string>>(
         name,
         [=](const std::vector<std::string>&) {
           throw CLI::ValidationError(
               fmt::format("{} is gone: {}", name, instead));
         })
      ->expected(0, 1)
      ->group("");
}

void NoteGivenFlags(CLI::App& app, std::vector<std::string>* names) {
  app.parse_complete_callback([&app, names] {
    for (const CLI::Option* option : app.get_options()) {
      if (option->count() > 0) names->push_back(option->get_name());
    }
  });
}

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
