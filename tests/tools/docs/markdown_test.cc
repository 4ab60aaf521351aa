// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/tools/docs/markdown.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MarkdownTest, FindsCodeBlocksWithTheCommentRightAboveThem) {
  const std::vector<CodeBlock> blocks = CodeBlocks(
      "# Title\n"
      "<!-- tested -->\n"
      "```console\n"
      "$ true\n"
      "\n"
      "```\n"
      "<!-- not this -->\n"
      "\n"
      "```\n"
      "x\n"
      "```\n");
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].language, "console");
  EXPECT_EQ(blocks[0].comment, "tested");
  EXPECT_EQ(blocks[0].line, 3);
  EXPECT_THAT(blocks[0].lines, ElementsAre("$ true", ""));
  EXPECT_EQ(blocks[1].comment, "");
  EXPECT_THAT(blocks[1].lines, ElementsAre("x"));
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

TEST(MarkdownTest, MakesIdsOfHeadings) {
  EXPECT_THAT(HeadingIds("# A `b` & C\n\n## A b  c\n#no\n# A `b` & C\n"),
              ElementsAre("a-b--c", "a-b--c-1", "a-b--c-2"));
}

TEST(MarkdownTest, TellsCommandsFromTheirOutput) {
  const std::vector<ConsoleCommand> commands = ConsoleCommands(
      {"$ one \\", "    --flag", "first", "second", "$ two", "", "third"});
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0].command, "one \\\n    --flag");
  EXPECT_THAT(commands[0].output, ElementsAre("first", "second"));
  EXPECT_EQ(commands[1].command, "two");
  EXPECT_THAT(commands[1].output, ElementsAre("", "third"));
  EXPECT_THAT(ConsoleCommands({}), IsEmpty());
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
