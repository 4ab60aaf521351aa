// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/json_value.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

constexpr char kNotUtf8[] = "a\xff\xc3\xa9";  // the last two are an e acute

JsonValue Parsed(std::string_view text) { return ParseJson(text).value(); }

TEST(JsonValueTest, WritesEveryKind) {
  JsonValue json;
  EXPECT_EQ(json.Dump(), "null");
  json["null"] = nullptr;
  json["yes"] = true;
  json["least"] = std::numeric_limits<int64_t>::min();
  json["most"] = std::numeric_limits<uint64_t>::max();
  json["small"] = -3;
  json["text"] = "a\"b\n";
  json["view"] = std::string_view("xyz").substr(1);
  json["list"].Append(3u);
  json["list"].Append(JsonValue::Array());
  json["object"] = JsonValue::Object();
  EXPECT_EQ(json.Dump(),
            R"({"null":null,"yes":true,"least":-9223372036854775808,)"
            R"("most":18446744073709551615,"small":-3,"text":"a\"b\n",)"
            R"("view":"yz","list":[3,[]],"object":{}})");
}

TEST(JsonValueTest, WritesTheShortestNumberThatReadsBack) {
  const std::pair<double, std::string_view> cases[] = {
      {0, "0.0"},
      {-0.0, "-0.0"},
      {2, "2.0"},
      {0.1, "0.1"},
      {1e15, "1e+15"},
      {123456789012345, "123456789012345.0"},
      {1e-5, "1e-05"},
      {0.0001, "0.0001"},
      {1.0 / 3, "0.3333333333333333"},
      {std::numeric_limits<double>::infinity(), "null"}};
  for (const auto& [number, text] : cases) {
    EXPECT_EQ(JsonValue(number).Dump(), text);
  }
}

TEST(JsonValueTest, IndentsByLevel) {
  const JsonValue json =
      JsonValue::Object({{"a", Parsed("[1,{}]")}, {"b", JsonValue::Array()}});
  EXPECT_EQ(json.Dump(2),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
}

TEST(JsonValueTest, KeepsTheOrderInWhichMembersWereSet) {
  JsonValue json = JsonValue::Object({{"z", 1}, {"a", "2"}});
  json["m"] = JsonValue::Object({{"x", JsonValue::Array()}});
  json["z"] = 3;
  EXPECT_EQ(json.Dump(), R"({"z":3,"a":"2","m":{"x":[]}})");
  EXPECT_EQ(json.keys(), (std::vector<std::string>{"z", "a", "m"}));
  json.Remove("a");
  json.Remove("not there");
  EXPECT_EQ(json.Dump(), R"({"z":3,"m":{"x":[]}})");
  EXPECT_EQ(json.size(), 2u);
}

// Many members are found as few are: ten times as many take about ten times as
// long, and not a hundred.
TEST(JsonValueTest, FindsEachOfManyMembers) {
  const auto build = [](int members) {
    const auto begin = std::chrono::steady_clock::now();
    JsonValue object;
    for (int i = 0; i < members; ++i) object[std::to_string(i)] = i;
    int64_t sum = 0;
    for (const std::string& key : object.keys()) sum += object[key].integer();
    EXPECT_EQ(sum, int64_t{members} * (members - 1) / 2);
    EXPECT_FALSE(object.contains("none"));
    return std::chrono::steady_clock::now() - begin;
  };
  build(30'000);
  auto few = build(30'000);
  auto many = build(300'000);
  for (int again = 0; again < 3 && many > few * 40; ++again) {
    few = std::max(few, build(30'000));
    many = std::min(many, build(300'000));
  }
  EXPECT_LT(many, few * 40);

  // What is removed is not found, and the rest is.
  JsonValue object;
  for (int i = 0; i < 100; ++i) object[std::to_string(i)] = i;
  for (int i = 0; i < 100; i += 2) object.Remove(std::to_string(i));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(object.contains(std::to_string(i)), i % 2 == 1) << i;
  }
  const JsonValue copy = object;
  EXPECT_EQ(copy["99"], 99);
}

TEST(JsonValueTest, WritesBytesThatAreNotUtf8AsItIsAsked) {
  EXPECT_EQ(JsonValue(kNotUtf8).Dump(), "\"a\xef\xbf\xbd\xc3\xa9\"");
  EXPECT_EQ(JsonAsciiText(kNotUtf8), R"("a\ufffd\u00e9")");
  EXPECT_EQ(JsonText(kNotUtf8), "");
  EXPECT_EQ(JsonText("\t\xc3\xa9"), "\"\\t\xc3\xa9\"");
}

TEST(JsonValueTest, ReadsWhatIsThere) {
  const JsonValue json = Parsed(
      R"({"a":[true,-7,18446744073709551615,2.5],"b":{"c":"text"},"d":null})");
  EXPECT_TRUE(json["a"][0].boolean());
  EXPECT_EQ(json["a"][1].integer(), -7);
  EXPECT_EQ(json["a"][1].real(), -7.0);
  EXPECT_EQ(json["a"][2], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(json["a"][3].real(), 2.5);
  EXPECT_EQ(json["b"]["c"].text(), "text");
  EXPECT_TRUE(json["d"].is_null());
  EXPECT_TRUE(json["d"].empty());
  EXPECT_TRUE(json.contains("d"));
  EXPECT_FALSE(json.contains("e"));
  EXPECT_TRUE(json["a"].is_array() && json["b"].is_object());
  EXPECT_TRUE(json["a"][2].is_integer());
  EXPECT_FALSE(json["a"][3].is_integer());
  std::ostringstream values;
  for (const JsonValue& value : json["a"]) values << value << ' ';
  EXPECT_EQ(values.str(), "true -7 18446744073709551615 2.5 ");
}

TEST(JsonValueTest, ComparesNumbersByWhatTheyAreWorth) {
  EXPECT_EQ(JsonValue(2), JsonValue(2.0));
  EXPECT_EQ(JsonValue(-2), JsonValue(int64_t{-2}));
  EXPECT_NE(JsonValue(-1), JsonValue(std::numeric_limits<uint64_t>::max()));
  EXPECT_NE(JsonValue(int64_t{9007199254740993}),
            JsonValue(int64_t{9007199254740992}));
  EXPECT_NE(JsonValue(1), JsonValue(true));
  EXPECT_NE(JsonValue("1"), JsonValue(1));
  EXPECT_NE(JsonValue(), JsonValue(false));
}

TEST(JsonValueTest, ComparesWhatIsInside) {
  EXPECT_EQ(Parsed(R"({"a":[1,{"b":null}]})"),
            Parsed(R"({"a":[1,{"b":null}]})"));
  EXPECT_NE(Parsed(R"({"a":1,"b":2})"), Parsed(R"({"b":2,"a":1})"));
  EXPECT_NE(Parsed("[1,2]"), Parsed("[1]"));
  EXPECT_NE(JsonValue::Array(), JsonValue::Object());
}

TEST(JsonValueTest, RefusesWhatIsNoDocument) {
  for (const char* text : {"", "{", "[1,]", "[1] 2", "{\"a\":1,\"a\":2}"}) {
    EXPECT_EQ(ParseJson(text).status().code(), ErrorCode::kMalformed) << text;
  }
}

TEST(JsonValueDeathTest, EndsWhereTheKindIsAnother) {
  const JsonValue json = Parsed(R"({"a":1,"big":18446744073709551615})");
  EXPECT_DEATH(json["b"], "contains");
  EXPECT_DEATH(json["a"].text(), "kText");
  EXPECT_DEATH(json["a"][0], "is_array");
  EXPECT_DEATH(json["big"].integer(), "whole_");
}

// Anything, at most `depth` deep.
JsonValue RandomValue(std::mt19937_64& random, int depth) {
  switch (random() % (depth > 0 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return uint64_t{random()};
    case 3:
      return static_cast<int64_t>(random());
    case 4:
      return std::ldexp(static_cast<double>(random()) - 9e18,
                        static_cast<int>(random() % 200) - 160);
    case 5:
      return std::string(random() % 4, static_cast<char>(random() % 127 + 1));
    case 6: {
      JsonValue array = JsonValue::Array();
      for (size_t i = random() % 4; i > 0; --i) {
        array.Append(RandomValue(random, depth - 1));
      }
      return array;
    }
    default: {
      JsonValue object = JsonValue::Object();
      for (size_t i = random() % 4; i > 0; --i) {
        object["k" + std::to_string(random() % 9)] =
            RandomValue(random, depth - 1);
      }
      return object;
    }
  }
}

TEST(JsonValueTest, ReadsBackWhatItWrites) {
  std::mt19937_64 random(TestSeed(71));
  for (int round = 0; round < 2000; ++round) {
    const JsonValue value = RandomValue(random, 4);
    const std::string text = value.Dump(round % 2 == 0 ? -1 : 2);
    const Result<JsonValue> again = ParseJson(text);
    ASSERT_TRUE(again.ok()) << again.status() << '\n' << text;
    ASSERT_EQ(*again, value);
  }
}

TEST(JsonValueTest, EscapesWhatShowsNothingAndReadsBackTheSame) {
  const std::string text =
      "\x7f\u0085\u00ad\u061c\u200b\u202e\u2066\ufeff\U000e0041 \u00e9\u2581";
  const JsonValue value(text);
  EXPECT_EQ(value.Dump(), R"("\u007f\u0085\u00ad\u061c\u200b\u202e\u2066\ufeff)"
                          R"(\udb40\udc41 )"
                          "\u00e9\u2581\"");
  EXPECT_EQ(JsonText(text), value.Dump());
  EXPECT_EQ(ParseJson(value.Dump()).value().text(), text);
  EXPECT_EQ(JsonValue("\xff").Dump(), "\"\ufffd\"");
}

}  // namespace
}  // namespace castor
