// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_DOOR_H_
#define CASTOR_COLLECTIVES_C_API_DOOR_H_

// What every function of the C ABI that can fail goes through: no exception
// gets out, a Status becomes a code, and its message is kept for the thread.
// Thread-safe.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "chunk/base/status.h"
#include "offload/start_thread.h"

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

// The caller's struct may be older or newer than ours: what both know is
// copied. REQUIRES: T begins with struct_size.
template <typename T>
Status CheckStructSize(const T& theirs, size_t least) {
  if (theirs.struct_size >= least) return OkStatus();
  return InvalidArgument(
      "struct_size is smaller than the struct ever was: set it to sizeof of "
      "the struct before the call");
}
template <typename T>
T TakeStruct(const T& theirs) {
  T ours = {};
  std::memcpy(&ours, &theirs, std::min(sizeof(T), theirs.struct_size));
  return ours;
}
template <typename T>
void GiveStruct(T ours, T* theirs) {
  ours.struct_size = theirs->struct_size;
  std::memcpy(theirs, &ours, std::min(sizeof(T), theirs->struct_size));
}

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_DOOR_H_
