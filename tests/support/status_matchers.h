// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define CASTOR_TESTS_SUPPORT_STATUS_MATCHERS_H_

// gmock matchers for Status and Result<T>; a mismatch prints the message.
//
//   EXPECT_THAT(pool.Take(0), IsOk());
//   EXPECT_THAT(status, StatusIs(ErrorCode::kTierFull));
//   EXPECT_THAT(status, StatusIs(ErrorCode::kTierFull, HasSubstr("4 slots")));
//   EXPECT_THAT(ParseBytes("1KiB"), IsOkAndHolds(KiB(1)));

#include <ostream>
#include <string>
#include <utility>

#include "chunk/base/status.h"
#include "gmock/gmock.h"

namespace castor {
namespace test_internal {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

}  // namespace test_internal

MATCHER(IsOk, negation ? "is a failure" : "is ok") {
  const Status& status = test_internal::StatusOf(arg);
  *result_listener << "which is " << status;
  return status.ok();
}

MATCHER_P(StatusIs, code,
          std::string(negation ? "is not " : "is ") +
              std::string(ErrorCodeName(code))) {
  const Status& status = test_internal::StatusOf(arg);
  *result_listener << "which is " << status;
  return status.code() == code;
}

// `message` is a matcher of, or the whole, message.
MATCHER_P2(StatusIs, code, message,
           std::string(negation ? "is not " : "is ") +
               std::string(ErrorCodeName(code)) + " with a message that " +
               testing::DescribeMatcher<std::string>(message)) {
  const Status& status = test_internal::StatusOf(arg);
  *result_listener << "which is " << status;
  return status.code() == code &&
         testing::Value(std::string(status.message()), message);
}

MATCHER_P(IsOkAndHolds, value, negation ? "does not hold it" : "holds it") {
  if (!arg.ok()) {
    *result_listener << "which is " << arg.status();
    return false;
  }
  return testing::ExplainMatchResult(value, arg.value(), result_listener);
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_STATUS_MATCHERS_H_
