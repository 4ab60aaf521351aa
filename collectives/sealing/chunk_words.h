// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_SEALING_CHUNK_WORDS_H_
#define CASTOR_COLLECTIVES_SEALING_CHUNK_WORDS_H_

// Messages that name chunks by number, which only a layout knows, for people
// who know parameters. Pure function, thread-safe.

#include <functional>
#include <string>
#include <string_view>

#include "chunk/base/ids.h"
#include "chunk/chunk_layout.h"

namespace castor {

// `message` with the first mention of each chunk followed by its parameters:
// "chunk 3 (blocks.0.attn.weight to blocks.0.mlp.bias) needs a gathered slot".
// "chunk 3 (gradient)" becomes "chunk 3 (gradient of a to b)". What is in
// quotes stays as it is.
std::string NameChunks(std::string_view message, const ChunkLayout& layout,
                       const std::function<std::string(ParamId)>& name);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_SEALING_CHUNK_WORDS_H_
