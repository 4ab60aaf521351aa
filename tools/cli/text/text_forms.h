// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_CLI_TEXT_TEXT_FORMS_H_
#define CASTOR_TOOLS_CLI_TEXT_TEXT_FORMS_H_

// Numbers, names and paragraphs as the pages for people show them. Pure
// functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace castor {

// Pages are made for a terminal of this many columns and lines.
inline constexpr size_t kPageColumns = 100;
inline constexpr size_t kPageLines = 40;

// 1,557,611,200
std::string Grouped(int64_t number);

// "1 chunk", "1,024 chunks".
std::string Plural(int64_t count, std::string_view noun);

// A share of one as "5.13 %"; what is above zero and rounds to it is
// "< 0.01 %".
std::string Percent(double fraction);

// "1.23 s", "45.6 ms", "789 us", "12 ns": three digits. REQUIRES: ns >= 0.
std::string FormatDuration(int64_t ns);

// "a", "a and b", "a, b and c".
std::string JoinedWithAnd(std::span<const std::string> words);

// A foreign name without what a terminal would obey.
std::string Shown(std::string_view text);

// What a shell reads back as `text`; "MODEL" where that is not printable.
std::string ShellWord(std::string_view text);

// ASCII is the same everywhere, blocks read better on a terminal that shows
// UTF-8.
enum class StripInk : uint8_t { kAscii, kBlocks };

// Shares over time as one line, a character for each: the lightest ink for
// anything at all, the darkest from 7/8 on, a space for none. What is below 0
// or above 1 counts as that.
std::string DrawStrip(std::span<const double> shares, StripInk ink);

// `label` and `text` as a paragraph: the label fills its own column, the words
// of the text lines of at most kPageColumns beside it. A word that is longer
// than a line has one of its own. Ends with a newline.
std::string Paragraph(std::string_view label, std::string_view text);

}  // namespace castor

#endif  // CASTOR_TOOLS_CLI_TEXT_TEXT_FORMS_H_
