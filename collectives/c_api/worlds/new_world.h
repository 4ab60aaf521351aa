// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_WORLDS_NEW_WORLD_H_
#define CASTOR_COLLECTIVES_C_API_WORLDS_NEW_WORLD_H_

// What the makers of worlds share. Pure functions, thread-safe.

#include <cstdint>
#include <memory>

#include "chunk/base/status.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/engine/engine_handle.h"

namespace castor::c_api {

// `given`, which may be null, with the defaults for zeros.
Result<castor_world_options> TakeOptions(const castor_world_options* given);
// 0: none.
int64_t TimeoutNs(const castor_world_options& options);
// That there can be as many, and that `rank` is one of them.
Status CheckRanks(int32_t ranks, int32_t rank = 0);
// Without communicators.
std::unique_ptr<WorldEntry> NewWorld(int32_t ranks,
                                     const castor_world_options& options);

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_WORLDS_NEW_WORLD_H_
