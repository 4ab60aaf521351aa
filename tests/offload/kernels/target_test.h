// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_KERNELS_TARGET_TEST_H_
#define CASTOR_TESTS_OFFLOAD_KERNELS_TARGET_TEST_H_

// A fixture that makes Highway dispatch to one instruction set at a time, of
// those that this build contains and this CPU has. Owner thread only: the
// choice is the process's.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "hwy/highway.h"

namespace castor {

class TargetTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    Force(GetParam());
    ASSERT_EQ(hwy::SupportedTargets(), GetParam());
  }
  void TearDown() override { Force(0); }

 private:
  // Zero gives the choice back to the CPU.
  static void Force(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::string TargetTestName(
    const testing::TestParamInfo<int64_t>& target) {
  return hwy::TargetName(target.param);
}

}  // namespace castor

#define CASTOR_INSTANTIATE_FOR_EACH_TARGET(Fixture) \
  INSTANTIATE_TEST_SUITE_P(                         \
      EachTarget, Fixture,                          \
      testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), TargetTestName)

#endif  // CASTOR_TESTS_OFFLOAD_KERNELS_TARGET_TEST_H_
