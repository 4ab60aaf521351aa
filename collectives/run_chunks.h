// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_RUN_CHUNKS_H_
#define CASTOR_COLLECTIVES_RUN_CHUNKS_H_

// The chunks of a layout as the record of a run describes them, so that who
// has a record and a layout can tell whether they are of one model. Pure
// function, thread-safe.

#include <span>
#include <string_view>
#include <vector>

#include "chunk/chunk_layout.h"
#include "placement/run_event.h"

namespace castor {

// By ChunkId. `names` by ParamId; of a chunk with many parameters the first few
// are named and the others counted.
std::vector<RunChunkInfo> RunChunksOf(const ChunkLayout& layout,
                                      std::span<const std::string_view> names);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_RUN_CHUNKS_H_
