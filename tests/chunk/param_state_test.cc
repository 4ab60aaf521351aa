// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/param_state.h"

#include <map>
#include <string>
#include <utility>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ParamStateTest, EveryStateKnowsItsEventsAndNoOther) {
  using S = ParamState;
  using E = ParamEvent;
  const std::map<std::pair<S, E>, S> legal = {
      {{S::kIdle, E::kOpen}, S::kOpen},
      {{S::kOpen, E::kOpen}, S::kOpen},
      {{S::kOpen, E::kHandBack}, S::kReady},
      {{S::kIdle, E::kMicroBatchEnd}, S::kIdle},
      {{S::kOpen, E::kMicroBatchEnd}, S::kIdle},
      {{S::kReady, E::kMicroBatchEnd}, S::kIdle},
  };
  for (const S state : {S::kIdle, S::kOpen, S::kReady}) {
    for (const E event : {E::kOpen, E::kHandBack, E::kMicroBatchEnd}) {
      SCOPED_TRACE(std::string(ParamStateName(state)) + " + " +
                   std::string(ParamEventName(event)));
      const auto found = legal.find({state, event});
      if (found != legal.end()) {
        EXPECT_THAT(NextState(state, event), IsOkAndHolds(found->second));
        continue;
      }
      EXPECT_THAT(
          NextState(state, event).status(),
          StatusIs(ErrorCode::kFailedPrecondition,
                   AllOf(HasSubstr(std::string(ParamStateName(state))),
                         HasSubstr(std::string(ParamEventName(event))))));
    }
  }
}

TEST(ParamStateTest, AnErrorSaysWhatToCall) {
  EXPECT_THAT(
      NextState(ParamState::kIdle, ParamEvent::kHandBack).status(),
      StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("Grad first")));
  EXPECT_THAT(
      NextState(ParamState::kReady, ParamEvent::kOpen).status(),
      StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("BeginMicroBatch")));
}

}  // namespace
}  // namespace castor
