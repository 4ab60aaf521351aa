// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace castor {
namespace {

// Text as roff shows it unchanged, a line that could be a request too.
std::string Roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  return text;
}

std::string PageName(const ProgramManual& program,
                     const CommandManual& command) {
  return fmt::format("{}-{}", program.name, command.name);
}

std::string PageTop(const ProgramManual& program, const std::string& page,
                    std::string_view summary) {
  return fmt::format(
      ".TH {} 1 \"\" \"{} {}\"\n"
      ".SH NAME\n{} \\- {}\n",
      Roff(Upper(page)), program.name, program.version, Roff(page),
      Roff(summary));
}

// As it stands, line by line.
std::string Verbatim(std::string_view title, std::string_view text) {
  const size_t begin = text.find_first_not_of('\n');
  if (begin == text.npos) return "";
  text.remove_prefix(begin);
  text.remove_suffix(text.size() - 1 - text.find_last_not_of('\n'));
  return fmt::format(".SH {}\n.nf\n{}\n.fi\n", title, Roff(text));
}

std::string Entry(const std::string& head, std::string_view text) {
  return fmt::format(".TP\n{}\n{}\n", head, Roff(text));
}

std::string FlagEntry(const FlagHelp& flag) {
  if (flag.positional) {
    return Entry(fmt::format("\\fI{}\\fR", Roff(flag.names.front())),
                 flag.help);
  }
  std::vector<std::string> names;
  for (const std::string& name : flag.names) {
    names.push_back(fmt::format("\\fB{}\\fR", Roff(name)));
  }
  const std::string form =
      flag.form.empty() ? "" : fmt::format(" \\fI{}\\fR", Roff(flag.form));
  return Entry(fmt::format("{}{}", fmt::join(names, ", "), form), flag.help);
}

// The words that a flag's value is one of; none where it may be another.
std::vector<std::string> Choices(const FlagHelp& flag) {
  std::vector<std::string> choices;
  std::string_view rest = flag.form;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('|'), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    // "N" and "SIZE" stand for what they are not.
    if (std::none_of(word.begin(), word.end(),
                     [](unsigned char c) { return std::isupper(c); })) {
      choices.emplace_back(word);
    }
  }
  return choices;
}

std::vector<std::string> CommandNames(const ProgramManual& program) {
  std::vector<std::string> names;
  for (const CommandManual& command : program.commands) {
    names.push_back(command.name);
  }
  return names;
}

}  // namespace

std::string ProgramPage(const ProgramManual& program) {
  std::string commands;
  std::vector<std::string> pages;
  for (const CommandManual& command : program.commands) {
    commands +=
        Entry(fmt::format("\\fB{}\\fR", Roff(command.name)), command.summary);
    pages.push_back(
        fmt::format("\\fB{}\\fR(1)", Roff(PageName(program, command))));
  }
  return fmt::format(
      "{}.SH SYNOPSIS\n\\fB{}\\fR \\fICOMMAND\\fR ...\n.SH COMMANDS\n{}{}"
      ".SH SEE ALSO\n{}\n",
      PageTop(program, program.name, program.summary), program.name, commands,
      Verbatim("EXIT STATUS", program.exit_codes), fmt::join(pages, ", "));
}

std::string CommandPage(const ProgramManual& program,
                        const CommandManual& command) {
  std::string synopsis;
  std::string arguments;
  std::string options;
  for (const FlagHelp& flag : command.flags) {
    (flag.positional ? arguments : options) += FlagEntry(flag);
    if (!flag.positional) continue;
    const std::string name =
        fmt::format("\\fI{}\\fR", Roff(flag.names.front()));
    synopsis += flag.required ? " " + name : " [" + name + "]";
  }
  if (!arguments.empty()) arguments = ".SH ARGUMENTS\n" + arguments;
  return fmt::format(
      "{}.SH SYNOPSIS\n\\fB{} {}\\fR [\\fIOPTIONS\\fR]{}\n{}.SH OPTIONS\n{}{}"
      "{}.SH SEE ALSO\n\\fB{}\\fR(1)\n",
      PageTop(program, PageName(program, command), command.summary),
      program.name, Roff(command.name), synopsis, arguments, options,
      Verbatim("DESCRIPTION", command.footer),
      Verbatim("EXIT STATUS", program.exit_codes), program.name);
}

std::string BashCompletion(const ProgramManual& program) {
  std::string cases;
  for (const CommandManual& command : program.commands) {
    std::vector<std::string> flags;
    std::string values;
    for (const FlagHelp& flag : command.flags) {
      if (flag.positional) continue;
      flags.insert(flags.end(), flag.names.begin(), flag.names.end());
      if (flag.form.empty()) continue;
      values += fmt::format("        {}) words='{}' value=1 ;;\n",
                            fmt::join(flag.names, "|"),
                            fmt::join(Choices(flag), " "));
    }
    cases += fmt::format(
        "    {}:*)\n"
        "      words='{}'\n"
        "      case $before in\n"
        "{}"
        "      esac ;;\n",
        command.name, fmt::join(flags, " "), values);
  }
  // Where no word fits, bash completes the name of a file.
  return fmt::format(
      "_{0}() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} "
      "before=${{COMP_WORDS[COMP_CWORD-1]}} words= value=\n"
      "  if [[ $word == = ]]; then word=; "
      "elif [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi\n"
      "  case ${{COMP_WORDS[1]}}:$COMP_CWORD in\n"
      "    *:1) words='{1} help --version' value=1 ;;\n"
      "    help:2) words='{1}' value=1 ;;\n"
      "{2}"
      "  esac\n"
      "  COMPREPLY=()\n"
      "  if [[ $value || $word == -* ]]; then "
      "COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); fi\n"
      "}}\n"
      "complete -o default -F _{0} {0}\n",
      program.name, fmt::join(CommandNames(program), " "), cases);
}

}  // namespace castor
