// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/json_fields.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/text/strict_json.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

const JsonPath kPath = {{true, "links", 0}, {true, "nvme_read", 0}};

JsonScalar Number(uint64_t value) {
  return {.kind = JsonKind::kUnsigned, .number = value};
}

TEST(JsonFieldsTest, RefusesAnUnknownKeyAndNamesTheNearest) {
  const std::vector<std::string> known = {"nvme_read", "nvme_write"};
  EXPECT_THAT(CheckKnownKey(kPath, known), IsOk());
  JsonPath mistyped = kPath;
  mistyped.back().key = "nvme_raed";
  EXPECT_THAT(CheckKnownKey(mistyped, known),
              StatusIs(ErrorCode::kMalformed,
                       "\"links\" holds the unknown key \"nvme_raed\"; did you "
                       "mean nvme_read?"));
  EXPECT_THAT(CheckKnownKey({{true, "q", 0}}, known),
              StatusIs(ErrorCode::kMalformed,
                       "the document holds the unknown key \"q\"; known are "
                       "nvme_read, nvme_write"));
}

TEST(JsonFieldsTest, ReadsCountsWithinTheirLimits) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(ReadJsonCount(kPath, Number(3), 3, 5), IsOkAndHolds(3));
  EXPECT_THAT(ReadJsonCount(kPath, Number(5), 3, 5), IsOkAndHolds(5));
  EXPECT_THAT(ReadJsonCount(kPath, Number(kMax), 0, kMax), IsOkAndHolds(kMax));
  for (const JsonScalar& wrong :
       {Number(2), Number(6), Number(std::numeric_limits<uint64_t>::max()),
        JsonScalar{.kind = JsonKind::kNegative, .real = -4},
        JsonScalar{.kind = JsonKind::kReal, .real = 4.5},
        JsonScalar{.kind = JsonKind::kString, .text = "4"}, JsonScalar{}}) {
    EXPECT_THAT(ReadJsonCount(kPath, wrong, 3, 5),
                StatusIs(ErrorCode::kMalformed,
                         "\"links\".\"nvme_read\" is " + JsonScalarText(wrong) +
                             " where a whole number from 3 to 5 belongs"));
  }
}

TEST(JsonFieldsTest, ReadsTruthAndNothingLikeIt) {
  EXPECT_THAT(ReadJsonBool(kPath, {.kind = JsonKind::kBool, .boolean = true}),
              IsOkAndHolds(true));
  EXPECT_THAT(ReadJsonBool(kPath, Number(1)),
              StatusIs(ErrorCode::kMalformed,
                       "\"links\".\"nvme_read\" is 1 where true or false "
                       "belongs"));
}

TEST(JsonFieldsTest, NamesTheSchemaItReads) {
  EXPECT_THAT(CheckSchema({.kind = JsonKind::kString, .text = "castor.x/1"},
                          "castor.x/1"),
              IsOk());
  EXPECT_THAT(CheckSchema({.kind = JsonKind::kString, .text = "castor.x/2"},
                          "castor.x/1"),
              StatusIs(ErrorCode::kMalformed,
                       "its schema is \"castor.x/2\"; this version reads "
                       "\"castor.x/1\""));
  EXPECT_THAT(CheckSchema(Number(1), "castor.x/1"),
              StatusIs(ErrorCode::kMalformed));
}

TEST(JsonFieldsTest, NamesWhatIsMissing) {
  EXPECT_THAT(MissingKey(kPath, "latency_ns"),
              StatusIs(ErrorCode::kMalformed,
                       "\"links\".\"nvme_read\" has no \"latency_ns\""));
}

}  // namespace
}  // namespace castor
