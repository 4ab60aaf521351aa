// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/chunk_state.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Every state takes the events that `legal` has for it. Any other is an error
// that names both; Gemini drops it without a word (defect D20).
template <typename State, typename Event>
void ExpectLegal(const std::map<std::pair<State, Event>, State>& legal,
                 State last_state, Event last_event,
                 std::string_view (*state_name)(State),
                 std::string_view (*event_name)(Event)) {
  for (int s = 0; s <= static_cast<int>(last_state); ++s) {
    for (int e = 0; e <= static_cast<int>(last_event); ++e) {
      const auto state = static_cast<State>(s);
      const auto event = static_cast<Event>(e);
      const std::string its_name(state_name(state));
      const std::string name(event_name(event));
      SCOPED_TRACE(its_name + " + " + name);
      EXPECT_NE(its_name, "unknown");
      EXPECT_NE(name, "unknown");
      const auto found = legal.find({state, event});
      if (found != legal.end()) {
        EXPECT_THAT(NextState(state, event), IsOkAndHolds(found->second));
      } else {
        EXPECT_THAT(NextState(state, event),
                    StatusIs(ErrorCode::kFailedPrecondition,
                             AllOf(HasSubstr(its_name), HasSubstr(name))));
      }
    }
  }
}

TEST(ChunkStateTest, EveryCopyStateKnowsItsEventsAndNoOther) {
  using S = CopyState;
  using E = CopyEvent;
  ExpectLegal<S, E>({{{S::kAbsent, E::kFetch}, S::kFilling},
                     {{S::kFilling, E::kReady}, S::kResident},
                     {{S::kFilling, E::kFail}, S::kAbsent},
                     {{S::kResident, E::kPin}, S::kPinned},
                     {{S::kResident, E::kRelease}, S::kAbsent},
                     {{S::kPinned, E::kPin}, S::kPinned},
                     {{S::kPinned, E::kUnpinLast}, S::kResident}},
                    S::kPinned, E::kRelease, CopyStateName, CopyEventName);
}

TEST(ChunkStateTest, EveryGradientStateKnowsItsEventsAndNoOther) {
  using S = GradState;
  using E = GradEvent;
  ExpectLegal<S, E>({{{S::kNone, E::kOpen}, S::kOpen},
                     {{S::kOpen, E::kAllReady}, S::kReducing},
                     {{S::kOpen, E::kAbandon}, S::kNone},
                     {{S::kReducing, E::kReduced}, S::kNone}},
                    S::kReducing, E::kAbandon, GradStateName, GradEventName);
}

TEST(ChunkStateTest, EveryParameterStateKnowsItsEventsAndNoOther) {
  using S = ParamState;
  using E = ParamEvent;
  ExpectLegal<S, E>({{{S::kIdle, E::kOpen}, S::kOpen},
                     {{S::kOpen, E::kOpen}, S::kOpen},
                     {{S::kOpen, E::kHandBack}, S::kReady},
                     {{S::kIdle, E::kMicroBatchEnd}, S::kIdle},
                     {{S::kOpen, E::kMicroBatchEnd}, S::kIdle},
                     {{S::kReady, E::kMicroBatchEnd}, S::kIdle}},
                    S::kReady, E::kMicroBatchEnd, ParamStateName,
                    ParamEventName);
}

TEST(ChunkStateTest, AnErrorSaysWhatToCall) {
  EXPECT_THAT(
      NextState(ParamState::kIdle, ParamEvent::kHandBack).status(),
      StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("Grad() first")));
  EXPECT_THAT(
      NextState(ParamState::kReady, ParamEvent::kOpen).status(),
      StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("BeginMicroBatch")));
}

}  // namespace
}  // namespace castor
