// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the pages of the repository say, but for commands.

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/file_text.h"
#include "tests/tools/docs/markdown.h"

namespace castor {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

// Bazel hands out README.md as a link to the one in the working tree.
fs::path Repository() { return fs::canonical("README.md").parent_path(); }

std::vector<fs::path> Pages() {
  std::vector<fs::path> pages;
  for (auto entry = fs::recursive_directory_iterator(Repository());
       entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().filename();
    if (entry->is_directory() && name.starts_with(".")) {
      entry.disable_recursion_pending();
    }
    if (entry->is_regular_file() && entry->path().extension() == ".md") {
      pages.push_back(entry->path());
    }
  }
  std::sort(pages.begin(), pages.end());
  return pages;
}

// Empty, or what is wrong with it.
std::string Complaint(const fs::path& page, const std::string& target) {
  if (target.find("://") != target.npos || target.starts_with("mailto:")) {
    return "";
  }
  const size_t hash = target.find('#');
  const std::string file = target.substr(0, hash);
  const fs::path to = file.empty() ? page : page.parent_path() / file;
  if (!fs::exists(to)) return "no such file";
  if (fs::relative(to, Repository()).string().starts_with("..")) {
    return "leads out of the repository";
  }
  if (hash == target.npos) return "";
  const std::vector<std::string> ids = HeadingIds(FileText(to));
  const bool found =
      std::find(ids.begin(), ids.end(), target.substr(hash + 1)) != ids.end();
  return found ? "" : "no such heading there";
}

// Every relative link in every page of the repository leads to a file, and its
// fragment to a heading. Looks at the working tree itself, not at what Bazel
// copied for the test, so that a link to any file counts.
TEST(LinksTest, EveryRelativeLinkResolves) {
  size_t links = 0;
  for (const fs::path& page : Pages()) {
    for (const Link& link : Links(FileText(page))) {
      ++links;
      const std::string complaint = Complaint(page, link.target);
      EXPECT_EQ(complaint, "")
          << page.string() << ":" << link.line << ": " << link.target;
    }
  }
  // The front page alone has these; fewer means that they were not found.
  EXPECT_GE(links, 10u);
}

// The code that the pages show is the code that is run. A block under
// <!-- from FILE: NAME --> equals what stands in FILE between
// "// [readme NAME]" and "// [end]" ("#" in Python), moved to the left margin.

std::string Trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(' ');
  return begin == line.npos ? "" : line.substr(begin);
}

std::vector<std::string> Region(const std::string& file,
                                const std::string& name) {
  const std::string mark = file.ends_with(".py") ? "# " : "// ";
  std::vector<std::string> region;
  bool inside = false;
  size_t margin = std::string::npos;
  for (const std::string& line : Lines(FileText(Repository() / file))) {
    if (inside && Trimmed(line) == mark + "[end]") break;
    if (inside) {
      region.push_back(line);
      margin = std::min(margin, line.find_first_not_of(' '));
    }
    if (Trimmed(line) == mark + "[readme " + name + "]") inside = true;
  }
  for (std::string& line : region) {
    line.erase(0, std::min(margin, line.size()));
  }
  return region;
}

TEST(SnippetsTest, EqualTheProgramTheyAreFrom) {
  constexpr std::string_view kFrom = "from ";
  std::map<std::string, int> snippets;  // by page
  for (const fs::path& page :
       {Repository() / "README.md", Repository() / "docs" / "reference.md"}) {
    for (const CodeBlock& block : CodeBlocks(FileText(page))) {
      if (block.language != "cpp" && block.language != "python") continue;
      SCOPED_TRACE(page.string() + ":" + std::to_string(block.line));
      ++snippets[page.filename()];
      const size_t colon = block.comment.find(": ");
      ASSERT_TRUE(block.comment.starts_with(kFrom) &&
                  colon != std::string::npos)
          << "the block does not say where it is from";
      const std::string file =
          block.comment.substr(kFrom.size(), colon - kFrom.size());
      const std::string name = block.comment.substr(colon + 2);
      EXPECT_FALSE(Region(file, name).empty())
          << file << " has no region " << name;
      EXPECT_EQ(block.lines, Region(file, name));
    }
  }
  EXPECT_THAT(snippets, ElementsAre(testing::Pair("README.md", 2),
                                    testing::Pair("reference.md", 2)));
}

TEST(MarkdownTest, FindsLinksOutsideCode) {
  const std::vector<Link> links = Links(
      "[a](b.md) and ![c](d.png \"title\"), `[no](no.md)`\n"
      "```\n"
      "[no](no.md)\n"
      "```\n"
      "- item\n"
      "    [nested](e.md)\n"
      "\n"
      "    [no](no.md)\n"
      "\n"
      "[ref]: f/g.h\n");
  std::vector<std::string> found;
  for (const Link& link : links) {
    found.push_back(link.target + ":" + std::to_string(link.line));
  }
  EXPECT_THAT(found, ElementsAre("b.md:1", "d.png:1", "e.md:6", "f/g.h:10"));
}

TEST(MarkdownTest, ThreeDotsStandForAnyLines) {
  EXPECT_TRUE(MatchesOutput({}, {}));
  EXPECT_TRUE(MatchesOutput({"a", "b"}, {"a", "b"}));
  EXPECT_FALSE(MatchesOutput({"a"}, {"a", "b"}));
  EXPECT_FALSE(MatchesOutput({"a", "b"}, {"a"}));
  EXPECT_TRUE(MatchesOutput({"..."}, {}));
  EXPECT_TRUE(MatchesOutput({"a", "...", "d"}, {"a", "b", "a", "d"}));
  EXPECT_TRUE(MatchesOutput({"a", "...", "d"}, {"a", "d"}));
  EXPECT_FALSE(MatchesOutput({"a", "...", "d"}, {"a", "b", "d", "e"}));
  EXPECT_TRUE(MatchesOutput({"...", "b", "..."}, {"b", "b", "c"}));
}

}  // namespace
}  // namespace castor
