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
#include <span>
#include <string_view>

#include "chunk/base/budget_raise.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "offload/lanes/start_thread.h"

namespace castor::c_api {

// The code; keeps the message and the raises unless it is ok. Allocates
// nothing.
int32_t Answer(ErrorCode code, std::string_view message,
               std::span<const BudgetRaise> raises = {}) noexcept;

// Why a callback of the caller's answered `code`; ok for 0. Takes the words of
// castor_set_error.
Status CallbackAnswer(int32_t code, std::string_view callback);
// Why a callback threw, which is no answer. `what` may be "".
Status CallbackThrew(std::string_view callback, std::string_view what);

// What a callback answers, of a program in C or in C++: an exception fails the
// call that the callback is for. `call` returns a code.
template <typename Call>
Status RunCallback(std::string_view callback, Call&& call) {
  try {
    return CallbackAnswer(call(), callback);
  } catch (const std::exception& error) {
    return CallbackThrew(callback, error.what());
  } catch (...) {
    return CallbackThrew(callback, "");
  }
}

// The same for a callback that answers nothing: stderr has what it threw, since
// no call is there to fail.
template <typename Call>
void RunNotice(std::string_view callback, Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    Log().Error(CallbackThrew(callback, error.what()).message());
  } catch (...) {
    Log().Error(CallbackThrew(callback, "").message());
  }
}

// The function of castor.h that the calling thread is in; "" for none.
const char* CurrentCall();
class InCall {
 public:
  explicit InCall(const char* name);
  ~InCall();
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  const char* const before_;
};

// REQUIRES: `call` returns a Status. `name` is that of the function of castor.h
// that calls, which the compiler gives.
template <typename Call>
int32_t ThroughTheDoor(Call&& call,
                       const char* name = __builtin_FUNCTION()) noexcept {
  try {
    const InCall in(name);
    const Status status = call();
    return Answer(status.code(), status.message(), status.raises());
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
