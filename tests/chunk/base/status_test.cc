// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/status.h"

#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace castor {
namespace {

constexpr ErrorCode kAllCodes[] = {ErrorCode::kOk,
                                   ErrorCode::kInternal,
                                   ErrorCode::kInvalidArgument,
                                   ErrorCode::kInfeasible,
                                   ErrorCode::kMalformed,
                                   ErrorCode::kUnavailable,
                                   ErrorCode::kStoppedEarly,
                                   ErrorCode::kTierFull,
                                   ErrorCode::kIoError,
                                   ErrorCode::kDataLoss,
                                   ErrorCode::kAborted,
                                   ErrorCode::kFailedPrecondition};

static_assert(sizeof(Status) <= 2 * sizeof(void*));

TEST(StatusTest, IsOkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), ErrorCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "ok");
}

TEST(StatusTest, CarriesCodeAndMessage) {
  const Status status = TierFull("device has 0 of 4 slots");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), ErrorCode::kTierFull);
  EXPECT_EQ(status.message(), "device has 0 of 4 slots");
  EXPECT_EQ(status.ToString(), "tier full: device has 0 of 4 slots");
  std::ostringstream out;
  out << status;
  EXPECT_EQ(out.str(), status.ToString());
}

TEST(StatusTest, FactoriesGiveTheirCodes) {
  EXPECT_EQ(Internal("").code(), ErrorCode::kInternal);
  EXPECT_EQ(InvalidArgument("").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Infeasible("").code(), ErrorCode::kInfeasible);
  EXPECT_EQ(Malformed("").code(), ErrorCode::kMalformed);
  EXPECT_EQ(Unavailable("").code(), ErrorCode::kUnavailable);
  EXPECT_EQ(TierFull("").code(), ErrorCode::kTierFull);
  EXPECT_EQ(IoError("").code(), ErrorCode::kIoError);
  EXPECT_EQ(DataLoss("").code(), ErrorCode::kDataLoss);
  EXPECT_EQ(Aborted("").code(), ErrorCode::kAborted);
  EXPECT_EQ(FailedPrecondition("").code(), ErrorCode::kFailedPrecondition);
}

TEST(StatusTest, EveryCodeHasANameAndAnExitCode) {
  std::set<std::string_view> names;
  for (const ErrorCode code : kAllCodes) {
    names.insert(ErrorCodeName(code));
    EXPECT_EQ(ExitCode(code) == 0, code == ErrorCode::kOk);
    EXPECT_LE(ExitCode(code), 6);
  }
  EXPECT_EQ(names.size(), std::size(kAllCodes));
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(ExitCode(ErrorCode::kInternal), 1);
  EXPECT_EQ(ExitCode(ErrorCode::kInvalidArgument), 2);
  EXPECT_EQ(ExitCode(ErrorCode::kInfeasible), 3);
  EXPECT_EQ(ExitCode(ErrorCode::kMalformed), 4);
  EXPECT_EQ(ExitCode(ErrorCode::kUnavailable), 5);
  EXPECT_EQ(ExitCode(ErrorCode::kStoppedEarly), 6);
}

TEST(StatusTest, ContextGoesBeforeTheMessageAndKeepsTheCode) {
  const Status status = Malformed("no dtype").WithContext("tensor 'w'");
  EXPECT_EQ(status.code(), ErrorCode::kMalformed);
  EXPECT_EQ(status.message(), "tensor 'w': no dtype");
  EXPECT_TRUE(OkStatus().WithContext("tensor 'w'").ok());
}

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  CASTOR_ASSIGN_OR_RETURN(const int half, Half(value));
  CASTOR_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int value, int* calls) {
  ++*calls;
  CASTOR_RETURN_IF_ERROR(Quarter(value).status());
  ++*calls;
  return OkStatus();
}

TEST(ResultTest, IsAValueOrAFailure) {
  const Result<int> good = Half(8);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(*good, 4);
  EXPECT_EQ(good.value(), 4);
  const Result<int> bad = Half(7);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), ErrorCode::kInvalidArgument);
}

TEST(ResultTest, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(**result, 5);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultTest, ReachesMembers) {
  const Result<std::vector<int>> result(std::vector<int>{1, 2, 3});
  EXPECT_EQ(result->size(), 3u);
}

TEST(ResultTest, MacrosPassFailuresUp) {
  EXPECT_EQ(Quarter(12).value(), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  int calls = 0;
  EXPECT_TRUE(CheckQuarter(4, &calls).ok());
  EXPECT_EQ(calls, 2);
  calls = 0;
  EXPECT_FALSE(CheckQuarter(5, &calls).ok());
  EXPECT_EQ(calls, 1);
}

TEST(ResultDeathTest, AFailureHasNoValue) {
  const Result<int> bad = Half(7);
  EXPECT_DEATH(bad.value(), "Result::ok.*odd");
}

TEST(ResultDeathTest, SuccessNeedsAValue) {
  EXPECT_DEATH(Result<int> none(OkStatus()), "CHECK");
}

}  // namespace
}  // namespace castor
