// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_CALL_CODE_H_
#define CASTOR_COLLECTIVES_WORLD_CALL_CODE_H_

// Part of the collective call (collective_call.h).
//
// A call as bytes, for ranks that are processes. Pure functions, thread-safe.

#include <cstddef>
#include <string>
#include <string_view>

#include "chunk/base/status.h"
#include "collectives/world/collective_call.h"

namespace castor::internal {

// Everything on which ranks must agree: two calls are the same call if and only
// if these are equal.
std::string EncodeCall(const CollectiveCall& call);
// `bytes` must outlive the result's purpose. Internal where they are none.
Result<CollectiveCall> DecodeCall(std::string_view bytes);

// Internal: `size` bytes came as `what`, of which this build knows nothing.
Status DamagedMessage(std::string_view what, size_t size);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_CALL_CODE_H_
