// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/instruction_set.h"

#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace castor {
namespace {

// Gemini's widest form can never be chosen (defect D6).
TEST(InstructionSetTest, IsWideWhereTheProcessorIs) {
  const InstructionSet set = KernelInstructionSet();
  EXPECT_FALSE(set.name.empty());
#if HWY_ARCH_X86
  std::ifstream file("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
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
