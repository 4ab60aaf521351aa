// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/text/document.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace castor {
namespace {

TEST(ValueTest, HasOneLookOnAPageAndOneAsData) {
  const struct {
    Value value;
    std::string page;
    std::string plain;
    JsonValue json;
  } cases[] = {
      {Value(), "-", "-", JsonValue()},
      {Value("text"), "text", "text", "text"},
      {Value::Name("a\x1b[2J"), "a\\x1b[2J", "a\\x1b[2J", "a\x1b[2J"},
      {Value(true), "yes", "yes", true},
      {Value(false), "no", "no", false},
      {Value(12'345), "12,345", "12345", 12'345},
      {Value(size_t{7}), "7", "7", 7},
      {Value(Elements(1'000)), "1,000", "1000", 1'000},
      {Value(0.25), "0.25", "0.25", 0.25},
      {Value(KiB(3)), "3 KiB", "3072", 3072},
      {Value(Bytes(-5)), "-5 B", "-5", -5},
      {Value::Ns(1'500), "1.50 us", "1500", 1'500},
      {Value::Ns(-1), "-1 ns", "-1", -1},
      {Value::Seconds(0.5), "500 ms", "0.500000000", 0.5},
      {Value::Seconds(1e12), "1e+12 s", "1000000000000.000000000", 1e12},
      {Value::Share(0.0513), "5.13 %", "0.0513", 0.0513},
      {Value::Share(1, 4), "25.00 %", "0.25", 0.25},
      {Value::Share(1, 0), "-", "-", JsonValue()},
      {Value::Change(-0.5), "-50.00 %", "-0.5", -0.5},
      {Value::Change(0.0), "equal", "0", 0.0},
      {Value(std::optional<Bytes>(KiB(1))), "1 KiB", "1024", 1024},
      {Value(std::optional<Bytes>()), "-", "-", JsonValue()},
      {Value::BytesOrDash(Bytes(0)), "-", "0", 0},
      {Value::BytesOrDash(KiB(1)), "1 KiB", "1024", 1024},
      {Value(5).As("five"), "five", "5", 5},
      {Value(5).Or("none"), "5", "5", 5},
      {Value::Seconds(std::nullopt).Or("unknown"), "unknown", "-", JsonValue()},
      {Value(Fields({{"a", 1}})), "", "{\"a\":1}", Fields({{"a", 1}})},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(each.value.Page(), each.page);
    EXPECT_EQ(each.value.Plain(), each.plain);
    EXPECT_EQ(each.value.Json(), each.json) << each.page;
  }
}

TEST(ValueTest, MakesObjectsAndArraysInOrder) {
  const std::vector<int> numbers = {1, 2};
  EXPECT_EQ(Fields({{"z", KiB(1)},
                    {"a", ListOf(numbers)},
                    {"list", ListOf(numbers,
                                    [](int n) {
                                      return Fields({{"n", n}});
                                    })},
                    {"none", std::optional<double>()}})
                .Dump(),
            R"({"z":1024,"a":[1,2],"list":[{"n":1},{"n":2}],"none":null})");
}

// Two rows for all, one for people.
Table SomeTable() {
  Table table({.key = "links", .word = "link"},
              {{"name", "link"},
               {"moved_bytes", "bytes"},
               {"", "of it"},
               {"transfers", "moves", Table::Align::kRight, Form::kPageAndJson},
               {"detail", ""}});
  table.Add({"up", KiB(2), Value::Share(0.5), 1'000, "x"});
  table.Add({"down", Bytes(0), Value(), 2, "y"}, Table::Mark::kChosen);
  table.Add({"both", KiB(2), "", "", ""}, Table::Mark::kNone, Form::kPage);
  return table;
}

TEST(TableTest, ShowsColumnsAndRowsWhereTheyBelong) {
  const Table table = SomeTable();
  EXPECT_EQ(table.Page(Emphasis::kNone),
            "  link  bytes    of it  moves\n"
            "  up    2 KiB  50.00 %  1,000\n"
            "> down    0 B        -      2\n"
            "  both  2 KiB\n");
  EXPECT_EQ(table.Plain(), "link\tup\t2048\tx\nlink\tdown\t0\ty\n");
  EXPECT_EQ(
      table.Json().Dump(),
      R"([{"name":"up","moved_bytes":2048,"transfers":1000,"detail":"x"},)"
      R"({"name":"down","moved_bytes":0,"transfers":2,"detail":"y"}])");
}

TEST(TableTest, PutsTextToTheLeftAndNumbersToTheRight) {
  Table table({}, {{"a", "text"}, {"b", "both"}, {"c", "numbers"}});
  table.Add({"a", "none", 1});
  table.Add({"\u2588", 22, 2});
  EXPECT_EQ(table.Page(Emphasis::kNone),
            "  text  both  numbers\n"
            "  a     none        1\n"
            "  \u2588       22        2\n");
}

TEST(TableTest, HasAHeaderInPlainAndMostRowsOnAPage) {
  Table table({.header = true, .most_rows = 2}, {{"n", "number"}});
  EXPECT_EQ(table.Page(Emphasis::kNone), "");
  EXPECT_EQ(table.Plain(), "#n\n");
  EXPECT_EQ(table.Json(), JsonValue::Array());
  Table untitled({.key = "data"}, {{"n"}});
  untitled.Add({1});
  EXPECT_EQ(untitled.Page(Emphasis::kNone), "");
  for (int n = 0; n < 5; ++n) table.Add({n});
  EXPECT_EQ(table.Page(Emphasis::kNone),
            "  number\n       0\n       1\n"
            "  ... and 3 more: --plain or --json\n");
  EXPECT_EQ(table.Plain(), "#n\n0\n1\n2\n3\n4\n");
}

// A document with something of each kind.
Document SomeDocument() {
  Document part;
  part.Set("ns", Value::Ns(5));
  part.Line({"step", 5, "-"});
  part.Say("Step", "is done");
  part.Say("Nothing", "");
  Document document("castor.some/1");
  document.Set("file", Value::Name("a\xff"));
  document.Say("File", "a");
  document.Add(SomeTable());
  document.Add(Table({}, {{"", "empty"}}));
  document.Add("step", part);
  document.Gap();
  document.SayUnbroken("Next", "castor");
  return document;
}

TEST(DocumentTest, PutsAnEmptyLineAroundTablesOnAPage) {
  const std::string page = SomeDocument().Page();
  EXPECT_EQ(page.substr(0, 16), "File        a\n\n ");
  EXPECT_EQ(page.substr(page.find("  both")),
            "  both  2 KiB\n\nStep        is done\n\nNext        castor\n");
}

TEST(DocumentTest, IsPrintedInTheFormAskedFor) {
  std::ostringstream out;
  const Console console{.out = out, .err = out, .colour = true};
  Print(SomeDocument(), Form::kPlain, console);
  EXPECT_EQ(out.str(), SomeTable().Plain() + "step\t5\t-\n");
  out.str("");
  Print(SomeDocument(), Form::kPage, console);
  EXPECT_NE(out.str().find("\x1b[1m> down"), std::string::npos);
  out.str("");
  Document small("castor.small/1");
  small.Set("z_bytes", Bytes(INT64_MAX));
  small.Set("a", "\xff");
  Print(small, Form::kJson, console);
  EXPECT_EQ(
      out.str(),
      "{\n  \"schema\": \"castor.small/1\",\n"
      "  \"z_bytes\": 9223372036854775807,\n  \"a\": \"\xef\xbf\xbd\"\n}\n");
}

TEST(DocumentTest, PutsPartsUnderAKeyOrBehindItsOwn) {
  Document part;
  part.Set("ns", 5);
  part.Line({"step", 5});
  Document document("castor.some/1");
  document.Add("step", part);
  document.Add("", part);
  EXPECT_EQ(document.Json().Dump(),
            R"({"schema":"castor.some/1","step":{"ns":5},"ns":5})");
  EXPECT_EQ(document.Plain(), "step\t5\nstep\t5\n");
}

TEST(DocumentTest, TakesOneFormFromTheFlags) {
  EXPECT_EQ(FormOf(false, false).value(), Form::kPage);
  EXPECT_EQ(FormOf(true, false).value(), Form::kJson);
  EXPECT_EQ(FormOf(false, true).value(), Form::kPlain);
  EXPECT_EQ(FormOf(true, true).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace castor
