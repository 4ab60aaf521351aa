// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/quantity_text.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/units_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kMostNs = 600'000'000'000;
constexpr int64_t kLeastRate = 1'000'000;
constexpr int64_t kMostRate = 1'000'000'000'000'000;

struct Parsed {
  std::string text;
  int64_t value;
};

struct Refused {
  std::string text;
  std::string why;
};

void ExpectParsed(const std::function<Result<int64_t>(std::string_view)>& parse,
                  const std::vector<Parsed>& cases) {
  for (const Parsed& each : cases) {
    EXPECT_THAT(parse(each.text), IsOkAndHolds(each.value)) << each.text;
  }
}

// `what` and `example` are in every message.
void ExpectRefused(
    const std::function<Result<int64_t>(std::string_view)>& parse,
    const std::string& what, const std::string& example,
    const std::vector<Refused>& cases) {
  for (const Refused& each : cases) {
    EXPECT_THAT(parse(each.text),
                StatusIs(ErrorCode::kInvalidArgument,
                         AllOf(HasSubstr(what), HasSubstr(each.why),
                               HasSubstr(example))))
        << each.text;
  }
}

Result<int64_t> Size(std::string_view text) {
  CASTOR_ASSIGN_OR_RETURN(const Bytes size, ParseSize(text));
  return size.count();
}
Result<int64_t> Time(std::string_view text) { return ParseTime(text, kMostNs); }
Result<int64_t> Rate(std::string_view text) {
  return ParseBandwidth(text, kLeastRate, kMostRate);
}

TEST(ParseSizeTest, ReadsTheSizeExactly) {
  ExpectParsed(Size,
               {{"0", 0},
                {"25769803776", 25769803776},
                {"7B", 7},
                {"7.0B", 7},
                {"007", 7},
                {"24GiB", 24 * (int64_t{1} << 30)},
                {"24 GiB", 24 * (int64_t{1} << 30)},
                {"24GB", 24'000'000'000},
                {"1.5GiB", 1610612736},
                {"3MiB", 3 << 20},
                {"3MB", 3'000'000},
                {"5KiB", 5120},
                {"5KB", 5000},
                {"2TiB", int64_t{1} << 41},
                {"2TB", 2'000'000'000'000},
                {"0.1KiB", 102},
                {"0.001KB", 1},
                {"0.0009KB", 0},
                // 2^-40 TiB is one byte, and takes forty digits to write.
                {"0.0000000000009094947017729282379150390625TiB", 1},
                {"0.0000000000009094947017729282379150390624TiB", 0},
                {"0.9999999999999999999999999999999999999999TiB",
                 (int64_t{1} << 40) - 1},
                {"9223372036854775807", std::numeric_limits<int64_t>::max()},
                {"8388607.999999TiB", 9223372036853676296}});
}

TEST(ParseSizeTest, SaysWhyNotAndWhatToWrite) {
  ExpectRefused(Size, "is not a size", "24GiB (2^30)",
                {{"", "it is empty"},
                 {"-1", "never negative"},
                 {"-0", "never negative"},
                 {"-1GiB", "never negative"},
                 {"+1", "does not begin with a digit"},
                 {"GiB", "does not begin with a digit"},
                 {".5GiB", "does not begin with a digit"},
                 {" 5GiB", "does not begin with a digit"},
                 {"1.GiB", "no digit follows the point"},
                 {"1.5", "bytes come whole"},
                 {"1.5B", "bytes come whole"},
                 {"24G", "\"G\" could mean 24GiB or 24GB"},
                 {"1.5gib", "\"gib\" could mean 1.5GiB or 1.5GB"},
                 {"24Gb", "could mean 24GiB or 24GB"},
                 {"1e9", "unit \"e9\" is unknown"},
                 {"0x10", "unit \"x10\" is unknown"},
                 {"1,000", "unit \",000\" is unknown"},
                 {"1.2.3GiB", "unit \".3GiB\" is unknown"},
                 {"5 \x1b[2J", "unit \"\\x1b[2J\" is unknown"},
                 {"9223372036854775808", "above the largest"},
                 {"8388608TiB", "above the largest"},
                 {"99999999999999999999999999999GiB", "above the largest"},
                 {"9223372036854775807TB", "above the largest"}});
}

TEST(ParseTimeTest, ReadsTimes) {
  ExpectParsed(Time, {{"800ns", 800},
                      {"10us", 10'000},
                      {"1.5ms", 1'500'000},
                      {"0.0000019s", 1'900},
                      {"0us", 0},
                      {"600s", kMostNs}});
}

TEST(ParseTimeTest, SaysWhyNotAndWhatToWrite) {
  ExpectRefused(Time, "is not a time", "10us",
                {{"", "does not begin with a digit"},
                 {"us", "does not begin with a digit"},
                 {"-1us", "does not begin with a digit"},
                 {"10", "it has no unit"},
                 {"10US", "its unit \"US\" is unknown"},
                 {"10min", "its unit \"min\" is unknown"},
                 {"1.us", "no digit follows the point"},
                 {"1.5ns", "nanoseconds come whole"},
                 {"601s", "above 600s"},
                 {"99999999999999999999s", "above 600s"}});
}

TEST(ParseBandwidthTest, ReadsBothKindsOfUnit) {
  ExpectParsed(Rate, {{"24GB/s", 24'000'000'000},
                      {"24GiB/s", int64_t{24} << 30},
                      {"6.8GB/s", 6'800'000'000},
                      {"500 MB/s", 500'000'000},
                      {"1MB/s", 1'000'000},
                      {"1000TB/s", kMostRate}});
}

TEST(ParseBandwidthTest, SaysWhyNotAndWhatToWrite) {
  ExpectRefused(Rate, "is not a bandwidth", "24GB/s (10^9)",
                {{"", "does not end with /s"},
                 {"24GB", "does not end with /s"},
                 {"24", "does not end with /s"},
                 {"/s", "does not count bytes"},
                 {"24/s", "does not count bytes"},
                 {"24Gb/s", "does not count bytes"},
                 {"24Gbit/s", "does not count bytes"},
                 {"24gB/s", "is no size"},
                 {"B/s", "is no size"},
                 {"-1GB/s", "is no size"},
                 {"1.5B/s", "is no size"},
                 {"0GB/s", "between 1MB/s and 1000TB/s"},
                 {"999KB/s", "between 1MB/s and 1000TB/s"},
                 {"1001TB/s", "between 1MB/s and 1000TB/s"}});
}

TEST(FormatExactTest, IsReadBackExactly) {
  const uint64_t seed = TestSeed(std::random_device{}());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const auto number = static_cast<int64_t>(random() >> (1 + random() % 63));
    ASSERT_THAT(ParseSize(FormatSizeExact(Bytes(number))),
                IsOkAndHolds(Bytes(number)));
    ASSERT_THAT(
        ParseTime(FormatTimeExact(number), std::numeric_limits<int64_t>::max()),
        IsOkAndHolds(number));
  }
  EXPECT_EQ(FormatTimeExact(2'000'000), "2ms");
  EXPECT_EQ(FormatTimeExact(1'500), "1500ns");
  EXPECT_EQ(FormatTimeExact(0), "0s");
}

std::optional<int64_t> Times(std::string_view text, int64_t unit) {
  const Result<DecimalNumber> number = TakeDecimal(&text);
  EXPECT_THAT(number, IsOk());
  return number->Times(unit);
}

TEST(DecimalNumberTest, LeavesWhatFollows) {
  for (const auto& [all, rest] : {std::pair("24GiB", "GiB"),
                                  {"1.50 us", " us"},
                                  {"7", ""},
                                  {"1.5.2", ".2"}}) {
    std::string_view text = all;
    EXPECT_THAT(TakeDecimal(&text), IsOk());
    EXPECT_EQ(text, rest);
  }
  EXPECT_TRUE((DecimalNumber{"1", "000"}).is_whole());
  EXPECT_FALSE((DecimalNumber{"1", "001"}).is_whole());
}

TEST(DecimalNumberTest, MultipliesExactlyAndRoundsDown) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Times("0.999", 1), 0);
  EXPECT_EQ(Times("0.3", 10), 3);
  // Any number of digits: the last of these would be lost in a double.
  EXPECT_EQ(Times("0.5000000000000000000000000000000000000001", 2), 1);
  EXPECT_EQ(Times("0.4999999999999999999999999999999999999999", 2), 0);
  EXPECT_EQ(Times("9223372036854775807", 1), kMax);
  EXPECT_EQ(Times("9223372036854775808", 1), std::nullopt);
  EXPECT_EQ(Times("9223372036854775807", 2), std::nullopt);
  EXPECT_EQ(Times("8388607.9999999", int64_t{1} << 40),
            (int64_t{8'388'607} << 40) + 1'099'511'517'824);
  EXPECT_EQ(Times("8388608", int64_t{1} << 40), std::nullopt);
}

}  // namespace
}  // namespace castor
