// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The C++ that the front page shows is the C++ that is compiled and run. A
// block under <!-- from FILE: NAME --> equals what stands in FILE between
// "// [readme NAME]" and "// [end]", moved to the left margin.

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/tools/docs/markdown.h"

namespace castor {
namespace {

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string Trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  return begin == line.npos ? "" : line.substr(begin);
}

std::vector<std::string> Region(const std::string& file,
                                const std::string& name) {
  std::vector<std::string> region;
  bool inside = false;
  size_t margin = std::string::npos;
  for (const std::string& line : Lines(Read(file))) {
    if (inside && Trimmed(line) == "// [end]") break;
    if (inside) {
      region.push_back(line);
      margin = std::min(margin, line.find_first_not_of(' '));
    }
    if (Trimmed(line) == "// [readme " + name + "]") inside = true;
  }
  for (std::string& line : region) {
    line.erase(0, std::min(margin, line.size()));
  }
  return region;
}

TEST(ReadmeSnippetsTest, EqualTheProgramTheyAreFrom) {
  constexpr std::string_view kFrom = "from ";
  int snippets = 0;
  for (const CodeBlock& block : CodeBlocks(Read("README.md"))) {
    if (block.language != "cpp") continue;
    ++snippets;
    const size_t colon = block.comment.find(": ");
    ASSERT_TRUE(block.comment.starts_with(kFrom) && colon != std::string::npos)
        << "README.md:" << block.line << " does not say where it is from";
    const std::string file =
        block.comment.substr(kFrom.size(), colon - kFrom.size());
    const std::string name = block.comment.substr(colon + 2);
    EXPECT_FALSE(Region(file, name).empty())
        << file << " has no region " << name;
    EXPECT_EQ(block.lines, Region(file, name)) << "README.md:" << block.line;
  }
  EXPECT_GE(snippets, 2);
}

}  // namespace
}  // namespace castor
