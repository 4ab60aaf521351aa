// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/options/option_table.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

enum class Pace : uint8_t { kSlow, kFast };

std::string_view PaceName(Pace pace) {
  return pace == Pace::kSlow ? "SLOW" : "FAST";
}

struct Stop {
  std::string name = {};
  std::optional<int64_t> minutes = {};
};

void FillStop(OptionTable& t, Stop* stop) {
  t.Text("name", &stop->name).Must();
  t.Whole("minutes", &stop->minutes, 1, 60);
}

// A member of each kind, and the table of them.
struct Trip {
  int seats = 4;
  std::optional<int64_t> tracks = {};
  double load = 0.5;
  Bytes luggage = KiB(3);
  std::optional<Bytes> cargo = {};
  int64_t wait_ns = 1'500'000;
  Pace pace = Pace::kSlow;
  std::optional<Pace> back = {};
  bool night = false;
  std::string driver = {};
  std::string line = "north";
  std::vector<std::string> guests = {};
  std::vector<Stop> stops = {};
  int64_t rows = 8;

  OptionTable Table() {
    OptionTable t;
    t.Whole("seats", &seats, 1, 9).Flag("--seats", "places").For(1);
    t.Whole("train.tracks", &tracks, 0, 5).Flag("--tracks", "rails").For(2);
    t.Real("train.load", &load, 0, 1).Flag("--load", "how full it is");
    t.Size("luggage", &luggage).Flag("--luggage", "bags").For(1 | 2);
    t.Size("cargo", &cargo).Flag("--cargo", "goods").Default("all");
    t.Time("wait_ns", &wait_ns, 1'000'000'000).Flag("--wait", "at the gate");
    t.Choice("pace", &pace, PaceName, {Pace::kSlow, Pace::kFast})
        .Flag("--pace", "how fast")
        .Same({"train", "--night"});
    t.Choice("back", &back, PaceName, {Pace::kFast}).Flag("--back", "");
    t.Switch("night", &night).Flag("--night", "in the dark");
    t.Text("driver", &driver).Flag("--driver", "who");
    t.Choice("line", &line, {"north", "south"}).Flag("--line", "which");
    t.Texts(&guests).Flag("--guest", "who else");
    t.List("stops", FillStop, &stops)
        .Flag("--stop", "where", [this](std::string_view text) {
          stops.push_back({std::string(text), {}});
          return OkStatus();
        });
    t.Whole("rows", &rows, 0, 100).MultipleOf(4).Flag("--rows", "of four");
    return t;
  }
};

Status Parse(Trip& trip, std::string_view flag, std::string_view text) {
  return ParseOption(trip.Table().OfFlag(flag), text);
}

TEST(OptionTableTest, AFlagsValueGoesToItsMember) {
  Trip trip;
  EXPECT_THAT(Parse(trip, "--seats", "7"), IsOk());
  EXPECT_EQ(trip.seats, 7);
  EXPECT_THAT(Parse(trip, "--tracks", "0"), IsOk());
  EXPECT_EQ(trip.tracks, 0);
  EXPECT_THAT(Parse(trip, "--load", "0.25"), IsOk());
  EXPECT_EQ(trip.load, 0.25);
  EXPECT_THAT(Parse(trip, "--luggage", "1.5KiB"), IsOk());
  EXPECT_EQ(trip.luggage, Bytes(1536));
  EXPECT_THAT(Parse(trip, "--cargo", "1MB"), IsOk());
  EXPECT_EQ(trip.cargo, Bytes(1'000'000));
  EXPECT_THAT(Parse(trip, "--wait", "2us"), IsOk());
  EXPECT_EQ(trip.wait_ns, 2'000);
  EXPECT_THAT(Parse(trip, "--pace", "fast"), IsOk());
  EXPECT_EQ(trip.pace, Pace::kFast);
  EXPECT_THAT(Parse(trip, "--back", "fast"), IsOk());
  EXPECT_EQ(trip.back, Pace::kFast);
  EXPECT_THAT(Parse(trip, "--night", ""), IsOk());
  EXPECT_TRUE(trip.night);
  EXPECT_THAT(Parse(trip, "--line", "south"), IsOk());
  EXPECT_EQ(trip.line, "south");
  EXPECT_THAT(Parse(trip, "--guest", "a"), IsOk());
  EXPECT_THAT(Parse(trip, "--guest", ""), IsOk());
  EXPECT_THAT(trip.guests, ElementsAre("a", ""));
  EXPECT_THAT(Parse(trip, "--rows", "12"), IsOk());
  EXPECT_EQ(trip.rows, 12);
}

TEST(OptionTableTest, SaysWhatIsWrongWithAFlagsValue) {
  const struct {
    const char* flag;
    const char* text;
    const char* why;
  } cases[] = {
      {"--seats", "0", "\"0\" is not a whole number from 1 to 9"},
      {"--seats", "1.5", "not a whole number"},
      {"--seats", "99999999999999999999", "not a whole number"},
      {"--load", "nan", "\"nan\" is not a number from 0 to 1"},
      {"--load", "2", "from 0 to 1"},
      {"--luggage", "24G", "24GiB or 24GB"},
      {"--wait", "2s", "above 1s"},
      {"--pace", "fats", "did you mean fast?"},
      {"--line", "east", "known are north, south"},
      {"--rows", "10", "\"10\" is no multiple of 4"},
  };
  for (const auto& each : cases) {
    Trip trip;
    EXPECT_THAT(Parse(trip, each.flag, each.text),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr(each.why)));
  }
}

TEST(OptionTableTest, AWordMayStandInPlaceOfANumber) {
  OptionScalar value = int64_t{3};
  OptionTable table;
  Option& row = table.Add(OptionType::kWhole, "ahead", "N|auto");
  row.most = 8;
  row.names = {"auto"};
  row.set = [&value](const OptionScalar& scalar) {
    value = scalar;
    return OkStatus();
  };
  row.get = [&value] { return std::optional(value); };
  row.Flag("--ahead", "how far");
  for (const auto& [flag, document, want] :
       {std::tuple("5", R"({"ahead": 5})", OptionScalar(int64_t{5})),
        std::tuple("auto", R"({"ahead": "auto"})",
                   OptionScalar(std::string("auto")))}) {
    EXPECT_THAT(ParseOption(table.OfFlag("--ahead"), flag), IsOk());
    EXPECT_EQ(value, want);
    EXPECT_THAT(OptionWords(table.OfFlag("--ahead")), ElementsAre(flag));
    value = int64_t{0};
    EXPECT_THAT(ReadOptions(document, table), IsOk());
    EXPECT_EQ(value, want);
    EXPECT_EQ(WriteOptions(table).Dump(), ParseJson(document).value().Dump());
  }
  EXPECT_THAT(ParseOption(table.OfFlag("--ahead"), "9"),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("neither a whole number from 0 to 8 nor "
                                 "auto")));
  for (const auto& [text, why] :
       {std::pair(R"({"ahead": "far"})",
                  "is \"far\" where a whole number or \"auto\" belongs"),
        std::pair(R"({"ahead": "5"})", "where a whole number or \"auto\""),
        std::pair(R"({"ahead": 9})", "is 9, which is neither"),
        std::pair(R"({"ahead": true})", "where a whole number or \"auto\"")}) {
    EXPECT_THAT(ReadOptions(text, table),
                StatusIs(ErrorCode::kMalformed, HasSubstr(why)))
        << text;
  }
}

TEST(OptionTableTest, WordsGiveAnOptionWhatItHas) {
  Trip trip;
  const auto words = [&trip](std::string_view flag) {
    return OptionWords(trip.Table().OfFlag(flag));
  };
  EXPECT_THAT(words("--seats"), ElementsAre("4"));
  EXPECT_THAT(words("--tracks"), IsEmpty());
  EXPECT_THAT(words("--load"), ElementsAre("0.5"));
  EXPECT_THAT(words("--luggage"), ElementsAre("3KiB"));
  EXPECT_THAT(words("--wait"), ElementsAre("1500us"));
  EXPECT_THAT(words("--pace"), ElementsAre("slow"));
  EXPECT_THAT(words("--back"), IsEmpty());
  EXPECT_THAT(words("--night"), IsEmpty());
  EXPECT_THAT(words("--driver"), IsEmpty());
  trip.night = true;
  trip.guests = {"a", "b"};
  EXPECT_THAT(words("--night"), ElementsAre(""));
  EXPECT_THAT(words("--guest"), ElementsAre("a", "b"));
}

TEST(OptionTableTest, HelpHasTheFormAndTheDefault) {
  Trip trip;
  OptionTable table = trip.Table();
  EXPECT_EQ(OptionForm(table.OfFlag("--pace")), "slow|fast");
  EXPECT_EQ(OptionForm(table.OfFlag("--luggage")), "SIZE");
  EXPECT_EQ(OptionHelp(table.OfFlag("--seats")), "places (default: 4)");
  EXPECT_EQ(OptionHelp(table.OfFlag("--cargo")), "goods (default: all)");
  EXPECT_EQ(OptionHelp(table.OfFlag("--driver")), "who");
  EXPECT_EQ(OptionHelp(table.OfFlag("--night")), "in the dark");
}

TEST(OptionTableTest, ADocumentSaysTheSameAndIsWrittenBack) {
  Trip trip;
  const auto said = ReadOptions(
      R"({"seats": 2, "train": {"load": 1, "tracks": 3}, "cargo": 5,
          "pace": "FAST", "night": true, "driver": "ann",
          "stops": [{"name": "a"}, {"minutes": 3, "name": "b"}]})",
      trip.Table());
  EXPECT_THAT(
      said, IsOkAndHolds(ElementsAre(
                "seats", "train.load", "train.tracks", "cargo", "pace", "night",
                "driver", "stops[].name", "stops[].minutes", "stops[].name")));
  EXPECT_EQ(trip.seats, 2);
  EXPECT_EQ(trip.load, 1);
  EXPECT_EQ(trip.tracks, 3);
  EXPECT_EQ(trip.pace, Pace::kFast);
  ASSERT_EQ(trip.stops.size(), 2u);
  EXPECT_EQ(trip.stops[0].minutes, std::nullopt);
  EXPECT_EQ(trip.stops[1].name, "b");
  EXPECT_EQ(trip.stops[1].minutes, 3);
  const std::string text = WriteOptions(trip.Table()).Dump();
  EXPECT_EQ(text,
            R"({"seats":2,"train":{"tracks":3,"load":1.0},"luggage":3072,)"
            R"("cargo":5,"wait_ns":1500000,"pace":"FAST","night":true,)"
            R"("driver":"ann","line":"north","stops":[{"name":"a"},)"
            R"({"name":"b","minutes":3}],"rows":8})");
  Trip again;
  ASSERT_THAT(ReadOptions(text, again.Table()), IsOk());
  EXPECT_EQ(WriteOptions(again.Table()).Dump(), text);
}

TEST(OptionTableTest, SaysWhatIsWrongWithADocument) {
  const struct {
    std::string text;
    const char* why;
  } cases[] = {
      {"", "(line 1, column 1)"},
      {"7", "where an object belongs"},
      {"[]", "where an object belongs"},
      {"{\n \"seatts\": 1}", "did you mean seats?"},
      {"{\n \"seatts\": 1}", "(line 2, column 2)"},
      {R"({"train": {"lod": 1}})", "did you mean load?"},
      {R"({"train": 1})", "\"train\" is 1 where an object belongs"},
      {R"({"train": []})", "\"train\" is an array where an object belongs"},
      {R"({"seats": {}})", "\"seats\" is an object where a value belongs"},
      {R"({"seats": [1]})", "\"seats\" is an array where a value belongs"},
      {R"({"seats": 10})", "is 10, which is not a whole number from 1 to 9"},
      {R"({"seats": 1.0})", "is 1.0 where a whole number belongs"},
      {R"({"seats": 1, "seats": 1})", "twice"},
      {R"({"train": {"load": 1.5}})", "a number from 0 to 1"},
      {R"({"train": {"load": "1"}})", "where a number belongs"},
      {R"({"luggage": -1})", "is not a whole number from 0"},
      {R"({"pace": "fats"})", "did you mean fast?"},
      {R"({"pace": 1})", "where a text belongs"},
      {R"({"night": 1})", "true or false"},
      {R"({"rows": 10})", "\"rows\" is 10, which is no multiple of 4"},
      {R"({"stops": {}})", "\"stops\" is an object where an array belongs"},
      {R"({"stops": 1})", "\"stops\" is 1 where an array belongs"},
      {R"({"stops": [1]})", "where an object belongs"},
      {R"({"stops": [[]]})", "where an object belongs"},
      {R"({"stops": [{"minutes": 1}]})", "has no \"name\""},
      {R"({"stops": [{"name": "a"}, {}]})", "has no \"name\""},
      {R"({"stops": [{"name": []}]})", "where a value belongs"},
      {R"({"stops": [{"name": "a", "hours": 1}]})", "unknown key \"hours\""},
  };
  for (const auto& each : cases) {
    Trip trip;
    EXPECT_THAT(ReadOptions(each.text, trip.Table()),
                StatusIs(ErrorCode::kMalformed, HasSubstr(each.why)))
        << each.text;
  }
}

TEST(OptionTableTest, WhatMustBeSaidIsAskedFor) {
  Trip trip;
  OptionTable table = trip.Table();
  table.OfFlag("--driver").Must();
  table.Schema("trip/1").Must();
  EXPECT_THAT(ReadOptions(R"({"schema": "trip/1"})", table),
              StatusIs(ErrorCode::kMalformed, HasSubstr("no \"driver\"")));
  EXPECT_THAT(ReadOptions(R"({"driver": ""})", table),
              StatusIs(ErrorCode::kMalformed, HasSubstr("no \"schema\"")));
  EXPECT_THAT(
      ReadOptions(R"({"schema": "trip/2"})", table),
      StatusIs(ErrorCode::kMalformed,
               AllOf(HasSubstr("trip/1"), HasSubstr("this version reads"))));
  EXPECT_THAT(ReadOptions(WriteOptions(table).Dump(), table), IsOk());
}

TEST(OptionTableTest, NothingIsSaidTwice) {
  Trip trip;
  const OptionTable table = trip.Table();
  const auto check = [&](const std::vector<std::string>& given,
                         const std::vector<std::string>& said) {
    return CheckSaidOnce(table, given, said, "trip.json");
  };
  const auto twice = [](const char* one, const char* other) {
    return StatusIs(
        ErrorCode::kInvalidArgument,
        AllOf(HasSubstr(one), HasSubstr(other), HasSubstr("leave one away")));
  };
  EXPECT_THAT(check({"--seats", "--load"}, {"cargo", "pace"}), IsOk());
  EXPECT_THAT(check({"--seats"}, {"seats"}), twice("--seats", "\"seats\""));
  EXPECT_THAT(check({"--stop"}, {"stops[].name"}),
              twice("--stop", "\"stops[].name\""));
  EXPECT_THAT(check({"--pace"}, {"train.load"}),
              twice("--pace", "\"train.load\""));
  EXPECT_THAT(check({"--night", "--pace"}, {}), twice("--pace", "--night"));
  // A name is not the beginning of another.
  EXPECT_THAT(check({"--back"}, {"backpack"}), IsOk());
}

TEST(OptionTableTest, RowsAreSelectedAndBoundAnew) {
  Trip trip;
  const OptionTable table = trip.Table();
  EXPECT_EQ(table.For(1).rows().size(), 2u);
  EXPECT_EQ(table.For(2).rows().size(), 2u);
  EXPECT_EQ(table.For(4).rows().size(), 0u);
  EXPECT_EQ(table.Find("seats")->flag, "--seats");
  EXPECT_EQ(table.Find("seat"), nullptr);
  EXPECT_EQ(table.Find(""), nullptr);
  OptionTable other = table;
  std::optional<int64_t> seats;
  other.Bind("--seats", &seats);
  EXPECT_THAT(ParseOption(other.OfFlag("--seats"), "9"), IsOk());
  EXPECT_EQ(seats, 9);
  EXPECT_EQ(trip.seats, 4);
}

}  // namespace
}  // namespace castor
