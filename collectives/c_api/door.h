// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_DOOR_H_
#define CASTOR_COLLECTIVES_C_API_DOOR_H_

// What every function of the C ABI that can fail goes through: no exception
// gets out, a Status becomes a code, and its message is kept for the thread.
// Thread-safe.

#include <cstdint>
#include <exception>
#include <new>
#include <string_view>

#include "chunk/base/status.h"
#include "offload/lanes/start_thread.h"

namespace castor::c_api {

// The code of `status`; keeps its message unless it is ok. Allocates nothing.
int32_t Answer(ErrorCode code, std::string_view message) noexcept;

// Why a callback of the caller's answered `code`; ok for 0. Takes the words of
// castor_set_error.
Status CallbackAnswer(int32_t code, std::string_view callback);

// REQUIRES: `call` returns a Status.
template <typename Call>
int32_t ThroughTheDoor(Call&& call) noexcept {
  try {
    const Status status = call();
    return Answer(status.code(), status.message());
  } catch (const std::bad_alloc&) {
    return Answer(ErrorCode::kUnavailable,
                  "this machine has too little memory for the call");
  } catch (const ThreadLimit& limit) {
    return Answer(ErrorCode::kUnavailable, limit.what());
  } catch (const std::exception& error) {
    return Answer(ErrorCode::kInternal, error.what());
  } catch (...) {
    return Answer(ErrorCode::kInternal, "an exception of no known kind");
  }
}

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_DOOR_H_
