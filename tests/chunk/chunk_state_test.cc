// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/chunk_state.h"

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

constexpr CopyState kCopyStates[] = {CopyState::kAbsent, CopyState::kFilling,
                                     CopyState::kResident, CopyState::kPinned};
constexpr CopyEvent kCopyEvents[] = {
    CopyEvent::kFetch, CopyEvent::kReady,     CopyEvent::kFail,
    CopyEvent::kPin,   CopyEvent::kUnpinLast, CopyEvent::kRelease};
constexpr GradState kGradStates[] = {GradState::kNone, GradState::kOpen,
                                     GradState::kReducing};
constexpr GradEvent kGradEvents[] = {GradEvent::kOpen, GradEvent::kAllReady,
                                     GradEvent::kReduced, GradEvent::kAbandon};

// The names of both, which every state and event has.
auto NamesBoth(std::string_view state, std::string_view event) {
  EXPECT_NE(state, "unknown");
  EXPECT_NE(event, "unknown");
  return StatusIs(
      ErrorCode::kFailedPrecondition,
      AllOf(HasSubstr(std::string(state)), HasSubstr(std::string(event))));
}

// Gemini drops what is illegal without a word (defect D20).
TEST(ChunkStateTest, EveryCopyStateKnowsItsEventsAndNoOther) {
  const std::map<std::pair<CopyState, CopyEvent>, CopyState> legal = {
      {{CopyState::kAbsent, CopyEvent::kFetch}, CopyState::kFilling},
      {{CopyState::kFilling, CopyEvent::kReady}, CopyState::kResident},
      {{CopyState::kFilling, CopyEvent::kFail}, CopyState::kAbsent},
      {{CopyState::kResident, CopyEvent::kPin}, CopyState::kPinned},
      {{CopyState::kResident, CopyEvent::kRelease}, CopyState::kAbsent},
      {{CopyState::kPinned, CopyEvent::kPin}, CopyState::kPinned},
      {{CopyState::kPinned, CopyEvent::kUnpinLast}, CopyState::kResident},
  };
  for (const CopyState state : kCopyStates) {
    for (const CopyEvent event : kCopyEvents) {
      SCOPED_TRACE(std::string(CopyStateName(state)) + " + " +
                   std::string(CopyEventName(event)));
      const auto found = legal.find({state, event});
      if (found != legal.end()) {
        EXPECT_THAT(NextState(state, event), IsOkAndHolds(found->second));
      } else {
        EXPECT_THAT(NextState(state, event),
                    NamesBoth(CopyStateName(state), CopyEventName(event)));
      }
    }
  }
}

TEST(ChunkStateTest, EveryGradientStateKnowsItsEventsAndNoOther) {
  const std::map<std::pair<GradState, GradEvent>, GradState> legal = {
      {{GradState::kNone, GradEvent::kOpen}, GradState::kOpen},
      {{GradState::kOpen, GradEvent::kAllReady}, GradState::kReducing},
      {{GradState::kOpen, GradEvent::kAbandon}, GradState::kNone},
      {{GradState::kReducing, GradEvent::kReduced}, GradState::kNone},
  };
  for (const GradState state : kGradStates) {
    for (const GradEvent event : kGradEvents) {
      SCOPED_TRACE(std::string(GradStateName(state)) + " + " +
                   std::string(GradEventName(event)));
      const auto found = legal.find({state, event});
      if (found != legal.end()) {
        EXPECT_THAT(NextState(state, event), IsOkAndHolds(found->second));
      } else {
        EXPECT_THAT(NextState(state, event),
                    NamesBoth(GradStateName(state), GradEventName(event)));
      }
    }
  }
}

}  // namespace
}  // namespace castor
