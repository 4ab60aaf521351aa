// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYOUT_CHUNK_STATE_H_
#define CASTOR_CHUNK_LAYOUT_CHUNK_STATE_H_

// What state a chunk's gathered copy and its gradient are in, as transition
// tables. An event that a state does not know is an error that
// names both, never ignored (Gemini drops illegal transitions silently, defect
// D20). Values and pure functions, thread-safe.
//
// The gathered copy:                        The gradient of one micro-batch:
//
//            Fetch          Ready                     Open          AllReady
//   kAbsent ------> kFilling ------> kResident   kNone ----> kOpen ---------+
//      ^               |              |  ^          ^                       v
//      |      Fail     |      Pin (n) |  | Unpin    |   Reduced kReducing
//      +---------------+              v  | (last)   +-----------------------+
//      |                            kPinned
//      +---- Release (kResident only)               Abandon: kOpen -> kNone
//
// And what state a parameter's gradient is in during one micro-batch. A chunk
// is reduced when all its parameters are kReady, so an event that came twice or
// too early must be an error that names the parameter.
//
//           Open            HandBack
//   kIdle ------> kOpen (n) --------> kReady
//     ^             |                   |
//     +-------------+-- MicroBatchEnd --+     (kIdle: stays)

#include <cstdint>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

enum class CopyState : uint8_t { kAbsent, kFilling, kResident, kPinned };
enum class CopyEvent : uint8_t {
  kFetch,
  kReady,
  kFail,
  kPin,
  kUnpinLast,
  kRelease,
};

enum class GradState : uint8_t { kNone, kOpen, kReducing };
enum class GradEvent : uint8_t { kOpen, kAllReady, kReduced, kAbandon };

enum class ParamState : uint8_t { kIdle, kOpen, kReady };
enum class ParamEvent : uint8_t { kOpen, kHandBack, kMicroBatchEnd };

std::string_view CopyStateName(CopyState state);
std::string_view CopyEventName(CopyEvent event);
std::string_view GradStateName(GradState state);
std::string_view GradEventName(GradEvent event);
std::string_view ParamStateName(ParamState state);
std::string_view ParamEventName(ParamEvent event);

// The state after `event`; FailedPrecondition names both when illegal. Pinning
// a pinned copy again is legal and leaves it pinned; the owner counts pins.
Result<CopyState> NextState(CopyState state, CopyEvent event);
Result<GradState> NextState(GradState state, GradEvent event);

// The same, and the message says what to call instead. Opening an open gradient
// again is legal: a parameter may be used several times.
Result<ParamState> NextState(ParamState state, ParamEvent event);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYOUT_CHUNK_STATE_H_
