// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sealing/chunk_words.h"

#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

// Chunk 0 holds two parameters, and chunk 1 one.
std::string Named(std::string_view message) {
  const std::vector<ParamSpec> params = {{"in.weight", {64}, DType::kF32},
                                         {"in.bias", {64}, DType::kF32},
                                         {"out", {128}, DType::kF32}};
  const std::vector<Elements> sizes = {Elements(128)};
  const ChunkLayout layout = PackChunks(params, sizes, PackOptions()).value();
  return NameChunks(message, layout,
                    [&](ParamId id) { return params[id.index()].name; });
}

TEST(ChunkWordsTest, NamesParametersWhereAMessageHasAChunksNumber) {
  EXPECT_EQ(Named("chunk 0 needs a slot"),
            "chunk 0 (in.weight to in.bias) needs a slot");
  EXPECT_EQ(Named("moving grad of chunk 1"), "moving grad of chunk 1 (out)");
  EXPECT_EQ(Named("held: chunk 1 (gradient), chunk 0 (parameters)"),
            "held: chunk 1 (gradient of out), "
            "chunk 0 (parameters of in.weight to in.bias)");
  EXPECT_EQ(Named("rank 1: chunk 1: both"), "rank 1: chunk 1 (out): both");
}

TEST(ChunkWordsTest, NamesAChunkOnceAndLeavesTheRestAlone) {
  EXPECT_EQ(Named("chunk 1 and chunk 1"), "chunk 1 (out) and chunk 1");
  for (const char* same :
       {"", "chunk", "chunk ", "chunk 2 is none", "chunk -1", "chunks 1 to 2",
        "--chunk 9KiB", "subchunk 1", "the file \"chunk 1\" is gone",
        "the file \"a\\\"chunk 1\" is gone", "chunk 99999999999999999999"}) {
    EXPECT_EQ(Named(same), same);
  }
}

}  // namespace
}  // namespace castor
