// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/status_matchers.h"

namespace castor::test_internal {

bool StatusMatcher::Explain(const Status& status,
                            testing::MatchResultListener* listener) const {
  *listener << "which is " << status;
  return status.code() == code_ &&
         (!message_ || message_->Matches(std::string(status.message())));
}

void StatusMatcher::DescribeTo(std::ostream* os) const {
  *os << "is " << ErrorCodeName(code_);
  if (message_) {
    *os << " with a message that ";
    message_->DescribeTo(os);
  }
}

void StatusMatcher::DescribeNegationTo(std::ostream* os) const {
  *os << "not: ";
  DescribeTo(os);
}

}  // namespace castor::test_internal
