// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/quote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "chunk/text/printable.h"

namespace castor {
namespace {

TEST(QuoteTest, LeavesOrdinaryNamesAsTheyAre) {
  EXPECT_EQ(Quoted("model.layers.0.mlp"), "\"model.layers.0.mlp\"");
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted("größe 模型 🦫"), "\"größe 模型 🦫\"");
}

TEST(QuoteTest, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Quoted("\x1b[2J"), "\"\\x1b[2J\"");
  EXPECT_EQ(Quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(Quoted("a\tb\nc\x7f"), "\"a\\tb\\nc\\x7f\"");
  EXPECT_EQ(Quoted(std::string_view("\0", 1)), "\"\\x00\"");
  EXPECT_EQ(Quoted("\xc2\x9b"), "\"\\xc2\\x9b\"");           // C1: CSI
  EXPECT_EQ(Quoted("\xe2\x80\xae"), "\"\\xe2\\x80\\xae\"");  // right to left
}

TEST(QuoteTest, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(Quoted("\xff"), "\"\\xff\"");
  EXPECT_EQ(Quoted("\xc0\xaf"), "\"\\xc0\\xaf\"");           // overlong
  EXPECT_EQ(Quoted("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"");  // surrogate
  EXPECT_EQ(Quoted("\xe6\xa8"), "\"\\xe6\\xa8\"");           // cut off
  EXPECT_EQ(Quoted("\xf4\x90\x80\x80"), "\"\\xf4\\x90\\x80\\x80\"");
}

TEST(QuoteTest, LeavesOutTheMiddleOfALongText) {
  const std::string quoted =
      Quoted(std::string(500, 'a') + std::string(500, 'b'));
  EXPECT_LT(quoted.size(), 150u);
  EXPECT_THAT(quoted, testing::StartsWith("\"aaaa"));
  EXPECT_THAT(quoted, testing::HasSubstr("...(888 bytes)..."));
  EXPECT_THAT(quoted, testing::EndsWith("bbbb\""));
}

TEST(PrintableTest, KeepsLinesAndEscapesWhatATerminalObeys) {
  EXPECT_EQ(Printable("a\tb\n\u00e9"), "a\tb\n\u00e9");
  EXPECT_EQ(Printable("\x1b[2J\r\x7f"), "\\x1b[2J\\x0d\\x7f");
  EXPECT_EQ(Printable("\u202e\xff"), "\\xe2\\x80\\xae\\xff");
  EXPECT_EQ(Printable("\xc3"), "\\xc3");
}

}  // namespace
}  // namespace castor
