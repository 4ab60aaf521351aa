// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYOUT_CHUNK_PACKER_H_
#define CASTOR_CHUNK_LAYOUT_CHUNK_PACKER_H_

// Next-fit packing in initialization order (the rule of ColossalAI's
// ChunkManager::register_tensor, with alignment and with the waste
// of oversize chunks counted): a parameter goes at the next aligned offset of
// the open chunk if it fits there whole, else the chunk is closed and a new one
// opened; one with more than C elements closes the open chunk and gets a chunk
// of its own, rounded up to Q. Where optimizer states of a chunk are cut into
// shards, a parameter that is to stay whole and would cross a border begins
// behind it. Pure functions, thread-safe.

#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"

namespace castor {

struct PackOptions {
  int world = 1;       // W: ranks that share a chunk
  Elements align{64};  // A: a multiple of 64
  int shards = 1;      // into which optimizer states of a chunk are cut; W's
                       // divisor
};

// No chunk is larger.
inline constexpr Bytes kLargestChunk = GiB(1) * (1 << 20);  // 1 PiB

// Chunks of parameters that stay whole are multiples of this: borders of their
// shards are aligned.
Elements WholeQuantum(const PackOptions& options);

// The least such chunk, each shard of which holds `size` elements.
Elements LeastForWhole(Elements size, const PackOptions& options);

// InvalidArgument where world or align is out of range, or align is not a
// multiple of 64.
Status ValidatePackOptions(const PackOptions& options);

// Parameters that may share chunks: indices into the list, in its order.
struct ParamGroup {
  DType dtype = DType::kF32;
  bool trainable = true;
  std::vector<ParamId> params;
  int states = -1;
  bool moments8 = false;
};

// Splits a list into groups by (dtype, trainable, states, moments8), in order
// of first sight.
std::vector<ParamGroup> GroupParams(std::span<const ParamSpec> params);

// The sizes of a group's parameters, in its order. Malformed names the first
// parameter whose shape is.
Result<std::vector<Elements>> GroupSizes(std::span<const ParamSpec> params,
                                         const ParamGroup& group);

// Which of a group's parameters no border of shards cuts, in its order. Empty:
// none, as where states are not cut into shards.
std::vector<bool> GroupWhole(std::span<const ParamSpec> params,
                             const ParamGroup& group,
                             const PackOptions& options);

// InvalidArgument where packing `sizes` in chunks of up to `chunk_size` could
// overflow a sum of elements or bytes: sizes come from files nobody vouches
// for. REQUIRES: valid options.
Status ValidatePackSums(std::span<const Elements> sizes, Elements chunk_size,
                        DType dtype, const PackOptions& options);

// What one group costs at one chunk size, without building the layout.
struct PackCount {
  int64_t chunks = 0;  // oversize ones included
  int64_t oversize_chunks = 0;
  Elements allocated;
  Elements oversize_allocated;  // of it, in oversize chunks
};

// Counts the packing of parameter sizes (in order) at chunk size C in one pass.
// `whole`: as GroupWhole has it. REQUIRES: valid options, C a positive multiple
// of Q, sizes >= 0 that ValidatePackSums accepts; where one stays whole, C is a
// size that size_family.h allows.
PackCount CountPacking(std::span<const Elements> sizes, Elements chunk_size,
                       const PackOptions& options,
                       const std::vector<bool>& whole = {});

// Builds the layout; `chunk_sizes[g]` is the C of group g of
// GroupParams(params). InvalidArgument where a size is not a positive multiple
// of Q, or too small for a parameter that is to stay whole, Malformed where a
// shape is. Chunks are numbered in the order in which they are opened, group by
// group.
Result<ChunkLayout> PackChunks(std::span<const ParamSpec> params,
                               std::span<const Elements> chunk_sizes,
                               const PackOptions& options);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYOUT_CHUNK_PACKER_H_
