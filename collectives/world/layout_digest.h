// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_LAYOUT_DIGEST_H_
#define CASTOR_COLLECTIVES_WORLD_LAYOUT_DIGEST_H_

// Layouts compared over a wire. Pure function, thread-safe.

#include <cstdint>

#include "chunk/chunk_layout.h"

namespace castor::internal {

// Of where everything lies: equal for equal layouts, on every machine, and
// different for different ones but for one in 2^64.
uint64_t LayoutDigest(const ChunkLayout& layout);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_LAYOUT_DIGEST_H_
