// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/c_api/door.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>

#include "chunk/base/version.h"
#include "collectives/c_api/castor.h"

namespace castor::c_api {
namespace {

// Of fixed size and without a destructor, so that a failure needs no memory and
// the library can be unloaded while threads live.
thread_local char t_last_error[2048] = "";
thread_local char t_callback_words[2048] = "";

template <size_t kSize>
void Keep(std::string_view words, char (&kept)[kSize]) {
  const size_t size = std::min(words.size(), kSize - 1);
  std::memcpy(kept, words.data(), size);
  kept[size] = '\0';
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

int32_t Answer(ErrorCode code, std::string_view message) noexcept {
  if (code != ErrorCode::kOk) {
    Keep(message, t_last_error);
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
  }
  return code;
}

const char* castor_last_error(void) { return castor::c_api::t_last_error; }

}  // extern "C"
