// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/param_spec.h"

#include <cstdint>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST(CountElementsTest, MultipliesTheDimensions) {
  EXPECT_THAT(CountElements({2, 3, 4}, DType::kF32),
              IsOkAndHolds(Elements(24)));
  EXPECT_THAT(CountElements({7}, DType::kBF16), IsOkAndHolds(Elements(7)));
}

TEST(CountElementsTest, AScalarIsOneElement) {
  EXPECT_THAT(CountElements({}, DType::kF32), IsOkAndHolds(Elements(1)));
}

TEST(CountElementsTest, AZeroMakesItEmptyHoweverLargeTheRest) {
  EXPECT_THAT(CountElements({0}, DType::kF32), IsOkAndHolds(Elements(0)));
  EXPECT_THAT(
      CountElements({int64_t{1} << 40, int64_t{1} << 40, 0}, DType::kF32),
      IsOkAndHolds(Elements(0)));
}

TEST(CountElementsTest, RefusesNegativeDimensions) {
  EXPECT_THAT(CountElements({4, -1}, DType::kF32),
              StatusIs(ErrorCode::kMalformed, HasSubstr("[4, -1]")));
  EXPECT_THAT(CountElements({0, -1}, DType::kF32),
              StatusIs(ErrorCode::kMalformed));
}

TEST(CountElementsTest, RefusesWhatNoMemoryHolds) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(
      CountElements({int64_t{1} << 32, int64_t{1} << 32}, DType::kU8),
      StatusIs(ErrorCode::kMalformed, HasSubstr("[4294967296, 4294967296]")));
  // The bits count, not the elements alone.
  EXPECT_THAT(CountElements({int64_t{1} << 59}, DType::kU8),
              IsOkAndHolds(Elements(int64_t{1} << 59)));
  EXPECT_THAT(CountElements({int64_t{1} << 60}, DType::kU8),
              StatusIs(ErrorCode::kMalformed));
  EXPECT_THAT(CountElements({int64_t{1} << 58}, DType::kF32),
              StatusIs(ErrorCode::kMalformed));
  EXPECT_THAT(CountElements({kMax, kMax, kMax}, DType::kF4),
              StatusIs(ErrorCode::kMalformed));
}

}  // namespace
}  // namespace castor
