// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/status_matchers.h"

#include <utility>

namespace castor {
namespace test_internal {

StatusMatcher::StatusMatcher(ErrorCode code)
    : code_(code), any_message_(true) {}
StatusMatcher::StatusMatcher(ErrorCode code, Message message)
    : code_(code), any_message_(false), message_(std::move(message)) {}
StatusMatcher::StatusMatcher(const StatusMatcher& other) = default;
StatusMatcher& StatusMatcher::operator=(const StatusMatcher& other) = default;
StatusMatcher::~StatusMatcher() = default;

bool StatusMatcher::Explain(const Status& status,
                            testing::MatchResultListener* listener) const {
  *listener << "which is " << status;
  return status.code() == code_ &&
         (any_message_ || message_.Matches(std::string(status.message())));
}

void StatusMatcher::DescribeTo(std::ostream* os) const {
  *os << "is " << ErrorCodeName(code_);
  if (!any_message_) {
    *os << " with a message that ";
    message_.DescribeTo(os);
  }
}

void StatusMatcher::DescribeNegationTo(std::ostream* os) const {
  *os << "not: ";
  DescribeTo(os);
}

SaysMatcher::SaysMatcher(std::vector<std::string> words)
    : words_(std::move(words)) {}

bool SaysMatcher::MatchAndExplain(
    std::string_view text, testing::MatchResultListener* listener) const {
  for (const std::string& word : words_) {
    if (text.find(word) != text.npos) continue;
    *listener << "which does not say \"" << word << "\"";
    return false;
  }
  return true;
}

void SaysMatcher::DescribeTo(std::ostream* os) const {
  *os << "says";
  for (const std::string& word : words_) *os << " \"" << word << "\"";
}

void SaysMatcher::DescribeNegationTo(std::ostream* os) const {
  *os << "not: ";
  DescribeTo(os);
}

}  // namespace test_internal

test_internal::StatusMatcher IsOk() {
  return test_internal::StatusMatcher(ErrorCode::kOk);
}

test_internal::StatusMatcher StatusIs(ErrorCode code) {
  return test_internal::StatusMatcher(code);
}

test_internal::StatusMatcher StatusIs(
    ErrorCode code, test_internal::StatusMatcher::Message message) {
  return test_internal::StatusMatcher(code, std::move(message));
}

}  // namespace castor

template testing::AssertionResult testing::internal::
    PredicateFormatterFromMatcher<castor::test_internal::StatusMatcher>::
    operator()<castor::Status>(const char*, const castor::Status&) const;
