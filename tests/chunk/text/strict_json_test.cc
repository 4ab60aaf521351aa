// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/status.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Writes down what it is told, and fails where it is asked to.
class Recorder final : public JsonHandler {
 public:
  std::vector<std::string> events;
  std::string fail_at;

  Status Open(const JsonPath& path, JsonContainer container) override {
    return Record(path, container == JsonContainer::kObject ? "{" : "[");
  }
  Status Close(const JsonPath& path) override { return Record(path, "end"); }
  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    return Record(path, JsonScalarText(scalar));
  }

 private:
  Status Record(const JsonPath& path, const std::string& what) {
    events.push_back(JsonPathText(path) + " " + what);
    if (what == fail_at) return Malformed("as asked");
    return OkStatus();
  }
};

TEST(StrictJsonTest, TellsEveryEventWithItsPath) {
  Recorder recorder;
  const Status status = ReadStrictJson(
      R"({"a":[1,-2,[true]],"b":{"c.d":"x","e":null},"f":1.5})", recorder);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(
      recorder.events,
      ElementsAre("the document {", "\"a\" [", "\"a\"[0] 1", "\"a\"[1] -2",
                  "\"a\"[2] [", "\"a\"[2][0] true", "\"a\"[2] end", "\"a\" end",
                  "\"b\" {", "\"b\".\"c.d\" \"x\"", "\"b\".\"e\" null",
                  "\"b\" end", "\"f\" 1.5", "the document end"));
}

TEST(StrictJsonTest, TakesOneScalarForADocument) {
  Recorder recorder;
  ASSERT_TRUE(ReadStrictJson(" 18446744073709551615 ", recorder).ok());
  EXPECT_THAT(recorder.events,
              ElementsAre("the document 18446744073709551615"));
}

TEST(StrictJsonTest, AllowsOneKeyInTwoObjects) {
  Recorder recorder;
  EXPECT_TRUE(
      ReadStrictJson(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", recorder).ok());
}

TEST(StrictJsonTest, StopsWhereTheHandlerFails) {
  Recorder recorder;
  recorder.fail_at = "\"2\"";
  const Status status = ReadStrictJson(R"(["1","2","3"])", recorder, 100);
  EXPECT_EQ(status.code(), ErrorCode::kMalformed);
  EXPECT_EQ(status.message(), "as asked (at byte 108)");
  EXPECT_EQ(recorder.events.back(), "[1] \"2\"");
}

struct Broken {
  std::string text;
  std::string message;
};

class StrictJsonBrokenTest : public testing::TestWithParam<Broken> {};

TEST_P(StrictJsonBrokenTest, IsMalformedAtAByte) {
  Recorder recorder;
  const Status status = ReadStrictJson(GetParam().text, recorder);
  EXPECT_EQ(status.code(), ErrorCode::kMalformed) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_THAT(std::string(status.message()), HasSubstr("byte"));
  EXPECT_LT(status.message().size(), 400u);
}

INSTANTIATE_TEST_SUITE_P(
    All, StrictJsonBrokenTest,
    testing::Values(
        Broken{"", "unexpected end of input"},
        Broken{"{", "unexpected end of input"},
        Broken{R"({"a":1,})", "(at byte 8)"},
        Broken{R"({"a":1,"a":2})", R"(the document holds the key "a" twice)"},
        Broken{R"({"x":{"a":1,"b":2,"a":3}})",
               R"("x" holds the key "a" twice (at byte 21))"},
        // The same key in another spelling.
        Broken{R"({"a":1,"\u0061":2})", R"(holds the key "a" twice)"},
        Broken{R"([{"a":1,"a":1}])", R"([0] holds the key "a" twice)"},
        Broken{"[1] [2]", "this is not JSON"},
        Broken{"[1]x", "this is not JSON"},
        Broken{std::string("[1]\0[2]", 7), "byte 3 is zero"},
        Broken{"[\"\xff\"]", "invalid string"},
        Broken{"[\"\xed\xa0\x80\"]", "invalid string"},
        Broken{"['a']", "this is not JSON"},
        Broken{"[1,/*c*/2]", "this is not JSON"},
        Broken{"[NaN]", "this is not JSON"}, Broken{"[01]", "this is not JSON"},
        Broken{"[1e999]", "number overflow"},
        Broken{"\"" + std::string(100'000, 'a'), "this is not JSON"},
        Broken{std::string(100'000, '['), "nested more than 64 deep"},
        Broken{std::string(100'000, '{'), "this is not JSON"}));

}  // namespace
}  // namespace castor
