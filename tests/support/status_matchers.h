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
//
// Half of the tests use them on many types, so the first two are classes whose
// work is compiled once: what MATCHER makes takes twice as long to compile.

#include <optional>
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

class StatusMatcher {
 public:
  using is_gtest_matcher = void;
  using Message = testing::Matcher<const std::string&>;

  explicit StatusMatcher(ErrorCode code) : code_(code) {}
  StatusMatcher(ErrorCode code, Message message)
      : code_(code), message_(std::move(message)) {}

  template <typename T>
  bool MatchAndExplain(const T& value,
                       testing::MatchResultListener* listener) const {
    return Explain(StatusOf(value), listener);
  }
  void DescribeTo(std::ostream* os) const;
  void DescribeNegationTo(std::ostream* os) const;

 private:
  bool Explain(const Status& status,
               testing::MatchResultListener* listener) const;

  ErrorCode code_;
  std::optional<Message> message_;
};

}  // namespace test_internal

inline test_internal::StatusMatcher IsOk() {
  return test_internal::StatusMatcher(ErrorCode::kOk);
}
inline test_internal::StatusMatcher StatusIs(ErrorCode code) {
  return test_internal::StatusMatcher(code);
}
// `message` is a matcher of, or the whole, message.
inline test_internal::StatusMatcher StatusIs(
    ErrorCode code, test_internal::StatusMatcher::Message message) {
  return test_internal::StatusMatcher(code, std::move(message));
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
