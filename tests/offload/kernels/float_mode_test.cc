// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/float_mode.h"

#include <gtest/gtest.h>

#include <cfenv>

#include "tests/offload/kernels/flushing_mode.h"

namespace castor {
namespace {

// Through volatile, so that the compiler computes when told to.
double Third() {
  volatile double one = 1;
  volatile double three = 3;
  return one / three;
}

float HalfOf(float value) {
  volatile float whole = value;
  volatile float half = 0.5f;
  return whole * half;
}

TEST(DefaultFloatModeTest, RoundsToNearestAndGivesTheCallersRoundingBack) {
  const double nearest = Third();
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const double upward = Third();
  double inside = 0;
  {
    const DefaultFloatMode mode;
    inside = Third();
  }
  const double after = Third();
  std::fesetround(FE_TONEAREST);
  EXPECT_NE(upward, nearest);
  EXPECT_EQ(inside, nearest);
  EXPECT_EQ(after, upward);
}

TEST(DefaultFloatModeTest, KeepsDenormalsWhereTheCallerFlushesThem) {
  constexpr float kLeastNormal = 0x1p-126f;
  float outside = 1;
  float inside = 0;
  float after = 1;
  {
    const FlushingMode flushing;
    if (!FlushingMode::kSupported) GTEST_SKIP() << "no mode to set here";
    outside = HalfOf(kLeastNormal);
    {
      const DefaultFloatMode mode;
      inside = HalfOf(kLeastNormal);
    }
    after = HalfOf(kLeastNormal);
  }
  EXPECT_EQ(outside, 0);
  EXPECT_EQ(inside, 0x1p-127f);
  EXPECT_EQ(after, 0);
  EXPECT_EQ(HalfOf(kLeastNormal), 0x1p-127f);
}

TEST(DefaultFloatModeTest, LeavesTheCallersExceptionFlagsAlone) {
  std::feclearexcept(FE_ALL_EXCEPT);
  {
    const DefaultFloatMode mode;
    EXPECT_NE(Third(), 0);
    EXPECT_NE(std::fetestexcept(FE_INEXACT), 0);
  }
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0);
  std::feraiseexcept(FE_DIVBYZERO);
  {
    const DefaultFloatMode mode;
    EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0);
  }
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);
  std::feclearexcept(FE_ALL_EXCEPT);
}

}  // namespace
}  // namespace castor
