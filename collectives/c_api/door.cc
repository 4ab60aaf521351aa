// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/c_api/door.h"

#include <iterator>
#include <string>

#include "chunk/base/version.h"
#include "collectives/c_api/castor.h"

namespace castor::c_api {
namespace {

// Of fixed size and without a destructor, so that a failure needs no memory and
// the library can be unloaded while threads live.
thread_local char t_last_error[2048] = "";

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
    const size_t size = std::min(message.size(), std::size(t_last_error) - 1);
    std::memcpy(t_last_error, message.data(), size);
    t_last_error[size] = '\0';
  }
  return static_cast<int32_t>(code);
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

const char* castor_last_error(void) { return castor::c_api::t_last_error; }

}  // extern "C"
