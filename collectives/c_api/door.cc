// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/c_api/door.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "chunk/base/version.h"
#include "collectives/c_api/castor.h"

namespace castor::c_api {
namespace {

// Of fixed size and without a destructor, so that a failure needs no memory and
// the library can be unloaded while threads live.
thread_local char t_last_error[2048] = "";
constexpr size_t kMostRaises = 8;
struct LastRaises {
  castor_raise raises[kMostRaises];
  size_t count;
};
thread_local LastRaises t_last_raises = {};
thread_local char t_callback_words[2048] = "";
thread_local const char* t_call = "";

template <size_t kSize>
void Keep(std::string_view words, char (&kept)[kSize], size_t at = 0) {
  const size_t size = std::min(words.size(), kSize - 1 - at);
  std::memcpy(kept + at, words.data(), size);
  kept[at + size] = '\0';
}

// Calls as messages of the engine name them, "call Step() first", and as C
// programs do: made of castor.h (bindings.py).
struct Call {
  std::string_view engine;
  std::string_view c;
};
constexpr Call kCalls[] = {
#include "collectives/c_api/calls.inc"
};

// The words for C programs, as far as there is room. Names are found from their
// beginning on; what is in quotes is somebody else's.
template <size_t kSize>
void KeepForC(std::string_view words, char (&kept)[kSize]) {
  size_t end = 0;
  bool quoted = false;
  bool in_word = false;
  Keep("", kept);
  while (!words.empty() && end < kSize - 1) {
    size_t taken = 1;
    std::string_view said = words.substr(0, 1);
    if (!quoted && !in_word) {
      for (const Call& call : kCalls) {
        if (!words.starts_with(call.engine)) continue;
        taken = call.engine.size();
        said = call.c;
      }
    }
    const char last = words[taken - 1];
    if (quoted && last == '\\' && words.size() > 1) {
      said = words.substr(0, taken = 2);
    } else if (last == '"') {
      quoted = !quoted;
    }
    in_word = std::isalnum(static_cast<unsigned char>(last)) != 0 ||
              last == '_' || last == ':';
    Keep(said, kept, end);
    end += said.size();
    words.remove_prefix(taken);
  }
}

static_assert(static_cast<int>(ErrorCode::kOk) == CASTOR_OK);
static_assert(static_cast<int>(ErrorCode::kInternal) == CASTOR_INTERNAL);
static_assert(static_cast<int>(ErrorCode::kInvalidArgument) ==
              CASTOR_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorCode::kInfeasible) == CASTOR_INFEASIBLE);
static_assert(static_cast<int>(ErrorCode::kMalformed) == CASTOR_MALFORMED);
static_assert(static_cast<int>(ErrorCode::kUnavailable) == CASTOR_UNAVAILABLE);
static_assert(static_cast<int>(ErrorCode::kStoppedEarly) ==
              CASTOR_STOPPED_EARLY);
static_assert(static_cast<int>(ErrorCode::kTierFull) == CASTOR_TIER_FULL);
static_assert(static_cast<int>(ErrorCode::kIoError) == CASTOR_IO_ERROR);
static_assert(static_cast<int>(ErrorCode::kDataLoss) == CASTOR_DATA_LOSS);
static_assert(static_cast<int>(ErrorCode::kAborted) == CASTOR_ABORTED);
static_assert(static_cast<int>(ErrorCode::kFailedPrecondition) ==
              CASTOR_FAILED_PRECONDITION);

}  // namespace

int32_t Answer(ErrorCode code, std::string_view message,
               std::span<const BudgetRaise> raises) noexcept {
  if (code != ErrorCode::kOk) {
    KeepForC(message, t_last_error);
    t_last_raises.count = std::min(raises.size(), kMostRaises);
    for (size_t i = 0; i < t_last_raises.count; ++i) {
      t_last_raises.raises[i] = {raises[i].device.count(),
                                 raises[i].host.count(),
                                 raises[i].nvme.count()};
    }
  }
  return static_cast<int32_t>(code);
}

Status CallbackAnswer(int32_t code, std::string_view callback) {
  const std::string words = t_callback_words;
  Keep("", t_callback_words);
  if (code == CASTOR_OK) return OkStatus();
  const bool known = code > CASTOR_OK && code <= CASTOR_FAILED_PRECONDITION;
  return Status(
      known ? static_cast<ErrorCode>(code) : ErrorCode::kAborted,
      words.empty()
          ? fmt::format("the callback {} answered {}", callback, code)
          : fmt::format("the callback {} failed: {}", callback, words));
}

Status CallbackThrew(std::string_view callback, std::string_view what) {
  Keep("", t_callback_words);
  return Aborted(what.empty()
                     ? fmt::format("the callback {} threw an exception of no "
                                   "known kind: return a code instead",
                                   callback)
                     : fmt::format("the callback {} threw: {}: return a code "
                                   "instead",
                                   callback, what));
}

const char* CurrentCall() { return t_call; }
InCall::InCall(const char* name) : before_(std::exchange(t_call, name)) {}
InCall::~InCall() { t_call = before_; }

}  // namespace castor::c_api

extern "C" {

int32_t castor_abi_version(void) { return CASTOR_ABI_VERSION; }

// A literal, so its end is marked.
const char* castor_version(void) { return castor::kVersion.data(); }

const char* castor_code_name(int32_t code) {
  if (code < CASTOR_OK || code > CASTOR_FAILED_PRECONDITION) return "unknown";
  return castor::ErrorCodeName(static_cast<castor::ErrorCode>(code)).data();
}

void castor_set_error(const char* words) {
  castor::c_api::Keep(words == nullptr ? "" : words,
                      castor::c_api::t_callback_words);
}

int32_t castor_fail(int32_t code, const char* words) {
  if (code != CASTOR_OK) {
    castor::c_api::Keep(words == nullptr ? "" : words,
                        castor::c_api::t_last_error);
    castor::c_api::t_last_raises.count = 0;
  }
  return code;
}

const char* castor_last_error(void) { return castor::c_api::t_last_error; }

size_t castor_last_raises(castor_raise* raises, size_t room) {
  const castor::c_api::LastRaises& last = castor::c_api::t_last_raises;
  if (raises != nullptr) {
    std::copy_n(last.raises, std::min(room, last.count), raises);
  }
  return last.count;
}

}  // extern "C"
