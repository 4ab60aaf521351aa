// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_PARAM_STATE_H_
#define CASTOR_CHUNK_PARAM_STATE_H_

// What state a parameter's gradient is in during one micro-batch, as a
// transition table. A chunk is reduced when all its parameters are kReady, so
// an event that came twice or too early must be an error that names the
// parameter, never ignored. Values and pure functions, thread-safe.
//
//           Open            HandBack
//   kIdle ------> kOpen (n) --------> kReady
//     ^             |                   |
//     +-------------+-- MicroBatchEnd --+     (kIdle: stays)

#include <cstdint>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

enum class ParamState : uint8_t { kIdle, kOpen, kReady };
enum class ParamEvent : uint8_t { kOpen, kHandBack, kMicroBatchEnd };

std::string_view ParamStateName(ParamState state);
std::string_view ParamEventName(ParamEvent event);

// The state after `event`; FailedPrecondition, naming both and saying what to
// call instead, when illegal. Opening an open gradient again is legal: a
// parameter may be used several times.
Result<ParamState> NextState(ParamState state, ParamEvent event);

}  // namespace castor

#endif  // CASTOR_CHUNK_PARAM_STATE_H_
