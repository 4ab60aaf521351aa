// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define CASTOR_TESTS_SUPPORT_STATUS_MATCHERS_H_

// gmock matchers for Status and Result<T>, and for what a message says; a
// mismatch prints the message.
//
//   EXPECT_THAT(pool.Take(0), IsOk());
//   EXPECT_THAT(status, StatusIs(ErrorCode::kTierFull));
//   EXPECT_THAT(status, StatusIs(ErrorCode::kTierFull, Says("4 slots")));
//   EXPECT_THAT(text, Says("4 slots", "raise the host budget"));
//   EXPECT_THAT(ParseBytes("1KiB"), IsOkAndHolds(KiB(1)));
//   ASSERT_OK_AND_ASSIGN(const Bytes size, ParseBytes("1KiB"));
//
// Half of the tests use them on many types, so the first two are a class whose
// work is compiled once: what MATCHER makes takes twice as long to compile.

#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

  explicit StatusMatcher(ErrorCode code);
  StatusMatcher(ErrorCode code, Message message);
  StatusMatcher(const StatusMatcher& other);
  StatusMatcher& operator=(const StatusMatcher& other);
  ~StatusMatcher();

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
  bool any_message_;
  Message message_;  // that of no text where any will do
};

class SaysMatcher {
 public:
  using is_gtest_matcher = void;

  explicit SaysMatcher(std::vector<std::string> words);
  bool MatchAndExplain(std::string_view text,
                       testing::MatchResultListener* listener) const;
  void DescribeTo(std::ostream* os) const;
  void DescribeNegationTo(std::ostream* os) const;

 private:
  std::vector<std::string> words_;
};

}  // namespace test_internal

test_internal::StatusMatcher IsOk();
test_internal::StatusMatcher StatusIs(ErrorCode code);
// `message` is a matcher of, or the whole, message.
test_internal::StatusMatcher StatusIs(
    ErrorCode code, test_internal::StatusMatcher::Message message);

// A text in which all of `words` stand, in any order.
template <typename... Words>
test_internal::SaysMatcher Says(const Words&... words) {
  return test_internal::SaysMatcher({std::string(words)...});
}

MATCHER_P(IsOkAndHolds, value, negation ? "does not hold it" : "holds it") {
  if (!arg.ok()) {
    *result_listener << "which is " << arg.status();
    return false;
  }
  return testing::ExplainMatchResult(value, arg.value(), result_listener);
}

}  // namespace castor

// Declares `lhs` and gives it what the Result holds, or ends the test.
#define ASSERT_OK_AND_ASSIGN(lhs, ...)                                    \
  CASTOR_ASSERT_ASSIGN_(CASTOR_TEST_NAME_(castor_result_, __LINE__), lhs, \
                        (__VA_ARGS__))
#define CASTOR_ASSERT_ASSIGN_(result, lhs, rexpr) \
  auto result = rexpr;                            \
  ASSERT_THAT(result, ::castor::IsOk());          \
  lhs = *std::move(result)
#define CASTOR_TEST_NAME_(prefix, line) CASTOR_TEST_PASTE_(prefix, line)
#define CASTOR_TEST_PASTE_(prefix, line) prefix##line

extern template testing::AssertionResult testing::internal::
    PredicateFormatterFromMatcher<castor::test_internal::StatusMatcher>::
    operator()<castor::Status>(const char*, const castor::Status&) const;

#endif  // CASTOR_TESTS_SUPPORT_STATUS_MATCHERS_H_
