// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_DOCS_MARKDOWN_H_
#define CASTOR_TESTS_TOOLS_DOCS_MARKDOWN_H_

// As much of Markdown as tests of documentation read: fenced code blocks with
// the comment above them, links, headings. Pure functions, thread-safe.

#include <string>
#include <string_view>
#include <vector>

namespace castor {

// Without line ends; a line end at the end makes no further line.
std::vector<std::string> Lines(std::string_view text);

struct CodeBlock {
  std::string language;  // after the opening fence
  // What an HTML comment on the line right above the block says; may be empty.
  std::string comment;
  int line = 0;  // of the opening fence, counted from 1
  std::vector<std::string> lines;
};
std::vector<CodeBlock> CodeBlocks(std::string_view text);

struct Link {
  std::string target;
  int line = 0;
};
// Inline links and images, and link definitions; none from code.
std::vector<Link> Links(std::string_view text);

// What a fragment of a link may name: headings as GitHub turns them into ids.
std::vector<std::string> HeadingIds(std::string_view text);

// A line that begins with "$ ", and those after it up to the next.
struct ConsoleCommand {
  std::string command;  // lines that end in a backslash are joined by line ends
  std::vector<std::string> output;
};
std::vector<ConsoleCommand> ConsoleCommands(
    const std::vector<std::string>& lines);

// Whether `output` is what `expected` shows, where a line "..." stands for any
// number of lines.
bool MatchesOutput(const std::vector<std::string>& expected,
                   const std::vector<std::string>& output);

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_DOCS_MARKDOWN_H_
