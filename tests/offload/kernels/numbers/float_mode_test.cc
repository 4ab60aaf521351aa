// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/numbers/float_mode.h"

#include <cfenv>
#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "offload/kernels/instruction_set.h"
#include "offload/kernels/numbers/host_device.h"
#include "tests/offload/kernels/kernel_data.h"
#include "tests/support/file_text.h"

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

// The root of an fp32 in fp64, rounded once more, is the correctly rounded one.
TEST(HostDeviceTest, SquareRootIsCorrectlyRounded) {
  std::mt19937_64 random = SeededGenerator();
  for (int i = 0; i < 100000; ++i) {
    const float value = std::abs(HostileFloat(random));
    if (std::isnan(value)) continue;
    EXPECT_EQ(SquareRoot(value),
              static_cast<float>(std::sqrt(static_cast<double>(value))));
  }
  EXPECT_TRUE(std::isnan(SquareRoot(-1.0f)));
}

// Gemini's widest form can never be chosen (defect D6).
TEST(InstructionSetTest, IsWideWhereTheProcessorIs) {
  const InstructionSet set = KernelInstructionSet();
  EXPECT_FALSE(set.name.empty());
#if HWY_ARCH_X86
  const std::string text = FileText("/proc/cpuinfo");
  const auto has = [&text](const char* flag) {
    return text.find(flag) != text.npos;
  };
  EXPECT_EQ(set.wide,
            has(" avx2 ") && has(" fma ") && has(" f16c ") && has(" bmi2 "));
#endif
}

TEST(InstructionSetTest, FollowsWhatHighwayWillChoose) {
  hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & HWY_STATIC_TARGET);
  const InstructionSet least = KernelInstructionSet();
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_EQ(least.name, hwy::TargetName(HWY_STATIC_TARGET));
#if HWY_ARCH_X86
  EXPECT_EQ(least.wide, HWY_STATIC_TARGET <= HWY_AVX2);
#endif
}

}  // namespace
}  // namespace castor
