// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/status_matchers.h"

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::Gt;
using testing::Not;

TEST(StatusMatchersTest, TellSuccessFromFailure) {
  EXPECT_THAT(OkStatus(), IsOk());
  EXPECT_THAT(IoError("disk"), Not(IsOk()));
  EXPECT_THAT(Result<int>(3), IsOk());
  EXPECT_THAT(Result<int>(IoError("disk")), Not(IsOk()));
}

TEST(StatusMatchersTest, CompareCodeAndMessage) {
  const Result<int> failed = TierFull("all 4 slots are taken");
  EXPECT_THAT(failed, StatusIs(ErrorCode::kTierFull));
  EXPECT_THAT(failed, Not(StatusIs(ErrorCode::kIoError)));
  EXPECT_THAT(failed, StatusIs(ErrorCode::kTierFull, Says("taken", "4 slots")));
  EXPECT_THAT(failed.status(),
              Not(StatusIs(ErrorCode::kTierFull, Says("taken", "5 slots"))));
  EXPECT_THAT("all 4 slots", Says("all"));
}

TEST(StatusMatchersTest, LookInsideAResult) {
  EXPECT_THAT(Result<int>(3), IsOkAndHolds(3));
  EXPECT_THAT(Result<int>(3), IsOkAndHolds(Gt(2)));
  EXPECT_THAT(Result<int>(3), Not(IsOkAndHolds(4)));
  EXPECT_THAT(Result<int>(IoError("disk")), Not(IsOkAndHolds(3)));
}

}  // namespace
}  // namespace castor
