// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_lane_control.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

class CudaLaneControlTest : public testing::Test {
 protected:
  std::shared_ptr<CudaControlWords> words_ =
      std::make_shared<CudaControlWords>();
  std::vector<Status> heard_;
  CudaLaneControl control_{words_, words_.get(), [this](const Status& status) {
                             heard_.push_back(status);
                           }};
};

TEST_F(CudaLaneControlTest, ALaneStartsWell) {
  EXPECT_FALSE(control_.failed());
  EXPECT_THAT(control_.first_failure(), IsOk());
  EXPECT_THAT(control_.StatusAt(kNever), IsOk());
  EXPECT_EQ(words_->poison, kNever);
  EXPECT_EQ(words_->flag, 0u);
  EXPECT_EQ(control_.flag_on_device(), &words_->flag);
  EXPECT_EQ(static_cast<const void*>(control_.poison_on_device()),
            &words_->poison);
}

TEST_F(CudaLaneControlTest, AFailureConcernsWhatComesAfterIt) {
  control_.Fail(7, IoError("late"));
  EXPECT_THAT(control_.StatusAt(7), IsOk());
  EXPECT_THAT(control_.StatusAt(8), StatusIs(ErrorCode::kIoError, "late"));
  EXPECT_EQ(words_->poison, 7u);
  // One that comes to light afterwards, but was queued before.
  control_.Fail(3, DataLoss("early"));
  EXPECT_THAT(control_.StatusAt(3), IsOk());
  EXPECT_THAT(control_.StatusAt(5), StatusIs(ErrorCode::kDataLoss, "early"));
  EXPECT_EQ(words_->poison, 3u);
  control_.Fail(9, Aborted("later still"));
  EXPECT_EQ(words_->poison, 3u);
  EXPECT_THAT(control_.first_failure(), StatusIs(ErrorCode::kIoError, "late"));
  EXPECT_THAT(heard_,
              testing::ElementsAre(StatusIs(ErrorCode::kIoError, "late")));
}

TEST_F(CudaLaneControlTest, TheFlagStandsAtTheLastWaitWithNoneOpenBeforeIt) {
  EXPECT_EQ(control_.BeginWait(10), 1u);
  EXPECT_EQ(control_.BeginWait(20), 2u);
  EXPECT_EQ(control_.BeginWait(30), 3u);
  control_.EndWait(20, OkStatus());
  EXPECT_EQ(words_->flag, 0u);
  control_.EndWait(10, OkStatus());
  EXPECT_EQ(words_->flag, 2u);
  control_.EndWait(30, OkStatus());
  EXPECT_EQ(words_->flag, 3u);
  EXPECT_EQ(control_.BeginWait(40), 4u);
  EXPECT_EQ(words_->flag, 3u);
}

TEST_F(CudaLaneControlTest, WhatIsBehindAnOpenWaitIsInDoubt) {
  EXPECT_FALSE(control_.InDoubt(kNever));
  control_.BeginWait(10);
  control_.BeginWait(20);
  EXPECT_FALSE(control_.InDoubt(10));
  EXPECT_TRUE(control_.InDoubt(11));
  control_.EndWait(10, OkStatus());
  EXPECT_FALSE(control_.InDoubt(15));
  EXPECT_TRUE(control_.InDoubt(21));
  control_.EndWait(20, IoError("disk gone"));
  EXPECT_FALSE(control_.InDoubt(21));
  EXPECT_EQ(words_->poison, 20u);
  EXPECT_THAT(control_.StatusAt(21), StatusIs(ErrorCode::kIoError));
}

}  // namespace
}  // namespace castor
