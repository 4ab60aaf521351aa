// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/tools/docs/markdown.h"

#include <cctype>
#include <map>

namespace castor {
namespace {

constexpr std::string_view kFence = "```";

bool IsFence(std::string_view line) { return line.starts_with(kFence); }

// What stands between "<!--" and "-->" if that is all the line holds.
std::string CommentIn(std::string_view line) {
  constexpr std::string_view kBegin = "<!-- ";
  constexpr std::string_view kEnd = " -->";
  if (!line.starts_with(kBegin) || !line.ends_with(kEnd)) return "";
  line.remove_prefix(kBegin.size());
  line.remove_suffix(kEnd.size());
  return std::string(line);
}

// The lines outside fenced blocks; those inside are left empty. Blocks that are
// code by indentation follow an empty line and have four spaces.
std::vector<std::string> Prose(std::string_view text) {
  std::vector<std::string> lines = Lines(text);
  bool fenced = false;
  bool indented = false;
  bool after_empty = true;
  for (std::string& line : lines) {
    const bool fence = IsFence(line);
    if (line.starts_with("    ")) {
      indented = indented || after_empty;
    } else if (!line.empty()) {
      indented = false;
    }
    after_empty = line.empty();
    if (fenced || fence || indented) line.clear();
    if (fence) fenced = !fenced;
  }
  return lines;
}

// `line` without what stands between single backticks.
std::string WithoutCode(const std::string& line) {
  std::string rest;
  bool code = false;
  for (char c : line) {
    if (c == '`') {
      code = !code;
    } else if (!code) {
      rest += c;
    }
  }
  return rest;
}

}  // namespace

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

std::vector<CodeBlock> CodeBlocks(std::string_view text) {
  std::vector<CodeBlock> blocks;
  bool inside = false;
  int number = 0;
  std::string above;
  for (std::string& line : Lines(text)) {
    ++number;
    if (IsFence(line)) {
      inside = !inside;
      if (!inside) continue;
      CodeBlock block;
      block.language = line.substr(kFence.size());
      block.comment = CommentIn(above);
      block.line = number;
      blocks.push_back(block);
    } else if (inside) {
      blocks.back().lines.push_back(line);
    }
    above = std::move(line);
  }
  return blocks;
}

std::vector<Link> Links(std::string_view text) {
  std::vector<Link> links;
  int number = 0;
  for (const std::string& raw : Prose(text)) {
    ++number;
    const std::string line = WithoutCode(raw);
    for (size_t at = line.find("]("); at != line.npos;
         at = line.find("](", at + 2)) {
      const size_t end = line.find_first_of(") ", at + 2);
      links.push_back({line.substr(at + 2, end - at - 2), number});
    }
    const size_t definition = line.find("]: ");
    if (line.starts_with("[") && definition != line.npos) {
      links.push_back({line.substr(definition + 3), number});
    }
  }
  return links;
}

std::vector<std::string> HeadingIds(std::string_view text) {
  std::vector<std::string> ids;
  std::map<std::string, int> seen;
  for (const std::string& line : Prose(text)) {
    const size_t level = line.find_first_not_of('#');
    if (level == 0 || level == line.npos || line[level] != ' ') continue;
    std::string id;
    for (char c : line.substr(level + 1)) {
      const unsigned char byte = static_cast<unsigned char>(c);
      if (std::isalnum(byte) || c == '-' || c == '_' || byte >= 0x80) {
        id += static_cast<char>(std::tolower(byte));
      } else if (c == ' ') {
        id += '-';
      }
    }
    const int times = seen[id]++;
    ids.push_back(times == 0 ? id : id + "-" + std::to_string(times));
  }
  return ids;
}

std::vector<ConsoleCommand> ConsoleCommands(
    const std::vector<std::string>& lines) {
  std::vector<ConsoleCommand> commands;
  bool continued = false;
  for (const std::string& line : lines) {
    if (continued) {
      commands.back().command += "\n" + line;
    } else if (line.starts_with("$ ")) {
      commands.push_back({line.substr(2), {}});
    } else if (!commands.empty()) {
      commands.back().output.push_back(line);
      continue;
    } else {
      continue;
    }
    continued = line.ends_with("\\");
  }
  return commands;
}

bool MatchesOutput(const std::vector<std::string>& expected,
                   const std::vector<std::string>& output) {
  // matched[j]: what was expected so far can end before output line j.
  std::vector<bool> matched(output.size() + 1, false);
  matched[0] = true;
  for (const std::string& line : expected) {
    std::vector<bool> next(output.size() + 1, false);
    for (size_t j = 0; j <= output.size(); ++j) {
      if (line == "...") {
        next[j] = matched[j] || (j > 0 && next[j - 1]);
      } else if (j > 0) {
        next[j] = matched[j - 1] && output[j - 1] == line;
      }
    }
    matched = next;
  }
  return matched.back();
}

}  // namespace castor
