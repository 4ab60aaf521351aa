// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/check.h"

#include "chunk/base/units.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(CheckTest, PassesAndEvaluatesOperandsOnce) {
  int calls = 0;
  const auto count = [&calls] { return ++calls; };
  CASTOR_CHECK(count() == 1);
  CASTOR_CHECK_EQ(count(), 2);
  CASTOR_CHECK_NE(count(), 0);
  CASTOR_CHECK_LT(count(), 5);
  CASTOR_CHECK_LE(count(), 5);
  CASTOR_CHECK_GT(count(), 5);
  CASTOR_CHECK_GE(count(), 7);
  EXPECT_EQ(calls, 7);
}

TEST(CheckTest, IsOneStatement) {
  if (const bool never = false; never)
    CASTOR_CHECK(false);
  else
    CASTOR_CHECK_EQ(1, 1);
}

TEST(CheckDeathTest, NamesPlaceAndCondition) {
  EXPECT_DEATH(CASTOR_CHECK(1 + 1 == 3),
               "internal error at .*check_test.cc:[0-9]+: "
               "CHECK\\(1 \\+ 1 == 3\\) failed");
}

TEST(CheckDeathTest, ComparisonsPrintBothOperands) {
  const int seven = 7;
  EXPECT_DEATH(CASTOR_CHECK_EQ(seven, 8), "seven == 8.*7 vs 8");
  EXPECT_DEATH(CASTOR_CHECK_NE(seven, 7), "7 vs 7");
  EXPECT_DEATH(CASTOR_CHECK_LT(seven, 7), "7 vs 7");
  EXPECT_DEATH(CASTOR_CHECK_LE(seven, 6), "7 vs 6");
  EXPECT_DEATH(CASTOR_CHECK_GT(seven, 7), "7 vs 7");
  EXPECT_DEATH(CASTOR_CHECK_GE(seven, 8), "7 vs 8");
  EXPECT_DEATH(CASTOR_CHECK_EQ(Bytes(1), Bytes(2)), "1 B vs 2 B");
}

}  // namespace
}  // namespace castor
