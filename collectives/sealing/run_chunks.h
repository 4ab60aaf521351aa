// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_SEALING_RUN_CHUNKS_H_
#define CASTOR_COLLECTIVES_SEALING_RUN_CHUNKS_H_

// The chunks of a layout as the record of a run describes them, so that who
// has a record and a layout can tell whether they are of one model. Pure
// function, thread-safe.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/chunk_layout.h"
#include "placement/run_event.h"

namespace castor {

// By ChunkId. `names` by ParamId. Parameters whose names are too long for a
// record are counted at the end of their chunk's: "wte.weight,wpe.weight,+3".
std::vector<RunChunkInfo> RunChunksOf(const ChunkLayout& layout,
                                      std::span<const std::string_view> names);

// The names of RunChunkInfo::params, without the count.
std::vector<std::string_view> ListedNames(std::string_view params);
// The first three of them, and how many more there are: for people.
std::string FewNames(std::string_view params);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_SEALING_RUN_CHUNKS_H_
