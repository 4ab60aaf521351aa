// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/rate_text.h"

#include <string>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RateTextTest, ReadsBandwidthsInBothKindsOfUnit) {
  EXPECT_THAT(ParseBandwidth("24GB/s"), IsOkAndHolds(24'000'000'000));
  EXPECT_THAT(ParseBandwidth("24GiB/s"), IsOkAndHolds(int64_t{24} << 30));
  EXPECT_THAT(ParseBandwidth("6.8GB/s"), IsOkAndHolds(6'800'000'000));
  EXPECT_THAT(ParseBandwidth("500 MB/s"), IsOkAndHolds(500'000'000));
  EXPECT_THAT(ParseBandwidth("1B/s"), IsOkAndHolds(1));
  EXPECT_THAT(ParseBandwidth("1000TB/s"), IsOkAndHolds(1'000'000'000'000'000));
}

struct Refused {
  std::string text;
  std::string why;
};

class BandwidthRefusedTest : public testing::TestWithParam<Refused> {};

TEST_P(BandwidthRefusedTest, SaysWhatToWrite) {
  EXPECT_THAT(
      ParseBandwidth(GetParam().text),
      StatusIs(
          ErrorCode::kInvalidArgument,
          AllOf(HasSubstr("\"" + GetParam().text + "\" is not a bandwidth"),
                HasSubstr(GetParam().why), HasSubstr("24GB/s (10^9)"))));
}

INSTANTIATE_TEST_SUITE_P(
    All, BandwidthRefusedTest,
    testing::Values(Refused{"", "does not end with /s"},
                    Refused{"24GB", "does not end with /s"},
                    Refused{"24", "does not end with /s"},
                    Refused{"/s", "does not count bytes"},
                    Refused{"24/s", "does not count bytes"},
                    Refused{"24Gb/s", "does not count bytes"},
                    Refused{"24Gbit/s", "does not count bytes"},
                    Refused{"24gB/s", "is no size"},
                    Refused{"B/s", "is no size"},
                    Refused{"-1GB/s", "is no size"},
                    Refused{"1.5B/s", "is no size"},
                    Refused{"0GB/s", "between 1B/s and 1000TB/s"},
                    Refused{"1001TB/s", "between 1B/s and 1000TB/s"}));

TEST(RateTextTest, ReadsLatencies) {
  EXPECT_THAT(ParseLatency("800ns"), IsOkAndHolds(800));
  EXPECT_THAT(ParseLatency("10us"), IsOkAndHolds(10'000));
  EXPECT_THAT(ParseLatency("1.5ms"), IsOkAndHolds(1'500'000));
  EXPECT_THAT(ParseLatency("0.0000019s"), IsOkAndHolds(1'900));
  EXPECT_THAT(ParseLatency("0us"), IsOkAndHolds(0));
  EXPECT_THAT(ParseLatency("600s"), IsOkAndHolds(600'000'000'000));
}

TEST(RateTextTest, AStepMayComputeForLongerThanALinkTakes) {
  EXPECT_THAT(ParseStepTime("850ms"), IsOkAndHolds(850'000'000));
  EXPECT_THAT(ParseStepTime("0s"), IsOkAndHolds(0));
  EXPECT_THAT(ParseStepTime("601s"), IsOkAndHolds(601'000'000'000));
  EXPECT_THAT(ParseStepTime("1000000s"), IsOkAndHolds(1'000'000'000'000'000));
  EXPECT_THAT(
      ParseStepTime("1000001s"),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("it is above 1000000s")));
  EXPECT_THAT(ParseStepTime("850"), StatusIs(ErrorCode::kInvalidArgument,
                                             HasSubstr("it has no unit")));
}

class LatencyRefusedTest : public testing::TestWithParam<Refused> {};

TEST_P(LatencyRefusedTest, SaysWhatToWrite) {
  EXPECT_THAT(
      ParseLatency(GetParam().text),
      StatusIs(ErrorCode::kInvalidArgument,
               AllOf(HasSubstr("\"" + GetParam().text + "\" is not a time"),
                     HasSubstr(GetParam().why), HasSubstr("10us"))));
}

INSTANTIATE_TEST_SUITE_P(
    All, LatencyRefusedTest,
    testing::Values(Refused{"", "does not begin with a digit"},
                    Refused{"us", "does not begin with a digit"},
                    Refused{"-1us", "does not begin with a digit"},
                    Refused{"10", "it has no unit"},
                    Refused{"10US", "its unit \"US\" is unknown"},
                    Refused{"10min", "its unit \"min\" is unknown"},
                    Refused{"1.us", "no digit follows the point"},
                    Refused{"1.5ns", "nanoseconds come whole"},
                    Refused{"601s", "above 600s"},
                    Refused{"99999999999999999999s", "above 600s"}));

}  // namespace
}  // namespace castor
