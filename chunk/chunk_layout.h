// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_CHUNK_LAYOUT_H_
#define CASTOR_CHUNK_CHUNK_LAYOUT_H_

// Where every parameter lies: the immutable result of packing. Everything is
// counted in elements of the group's dtype; the mirrored chunks (gradient,
// master weights, moments) have the same layout, so one layout serves them all.
//
//   chunk k   |p0....|pad|p1...........|pad|p2.......|tail...........|
//             0          offset(p1)                  used            size
//             |<- shard of rank 0 ->|<- rank 1 ->|       ...         |
//
// A group of the layout is the chunks of one size that hold the parameters of
// one dtype, trainable or frozen, with as many optimizer states, kept alike.
//
// Immutable once built, hence thread-safe.

#include <cstdint>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"

namespace castor {

// Q: every chunk size is a multiple of it, so that all shards are equal and a
// multiple of 128 elements.
constexpr Elements ChunkQuantum(int world) { return Elements(128) * world; }

// Where one parameter lies inside its chunk. A parameter of size zero has no
// chunk (`chunk` is not valid).
struct ParamPlace {
  ChunkId chunk;
  Elements offset;
  Elements size;
};

struct ChunkInfo {
  int32_t group = 0;            // index into ChunkLayout::groups()
  Elements size;                // a multiple of Q
  Elements used;                // end of the last parameter
  Elements payload;             // sum of its parameters' sizes
  bool oversize = false;        // holds one parameter larger than its C
  std::vector<ParamId> params;  // in order of offset
};

// Parameters that may share chunks.
struct GroupInfo {
  DType dtype = DType::kF32;
  bool trainable = true;
  Elements chunk_size;          // C of this group
  std::vector<ChunkId> chunks;  // in packing order
  int states = -1;              // ParamSpec::states of its parameters
  bool moments8 = false;        // ParamSpec::moments8 of them
};

// One rank's slice of a chunk.
struct ShardRange {
  Elements begin;
  Elements end;
};

class ChunkLayout {
 public:
  // `places` by ParamId, `chunks` by ChunkId. CHECKs that they agree with each
  // other: no overlap, offsets aligned, every size a multiple of Q.
  ChunkLayout(int world, Elements align, std::vector<ParamPlace> places,
              std::vector<ChunkInfo> chunks, std::vector<GroupInfo> groups);

  int world() const { return world_; }
  Elements align() const { return align_; }  // A
  Elements quantum() const;                  // Q = 128 * world

  const std::vector<ParamPlace>& places() const { return places_; }
  const std::vector<ChunkInfo>& chunks() const { return chunks_; }
  const std::vector<GroupInfo>& groups() const { return groups_; }
  const ParamPlace& place(ParamId id) const { return places_[id.index()]; }
  const ChunkInfo& chunk(ChunkId id) const { return chunks_[id.index()]; }
  DType dtype(ChunkId id) const;

  // Elements of chunk `id` that rank `rank` owns when it is sharded.
  ShardRange shard(ChunkId id, int rank) const;

  // Sums over the chunks of one group, or of all groups (of one dtype each:
  // elements of different groups are never added; use bytes then).
  Elements allocated(int32_t group) const;
  Elements payload(int32_t group) const;
  Bytes allocated_bytes() const;
  Bytes payload_bytes() const;
  // waste = allocated - payload: padding, tails and oversize rounding.
  Elements waste(int32_t group) const {
    return allocated(group) - payload(group);
  }

 private:
  int world_;
  Elements align_;
  std::vector<ParamPlace> places_;
  std::vector<ChunkInfo> chunks_;
  std::vector<GroupInfo> groups_;
};

}  // namespace castor

#endif  // CASTOR_CHUNK_CHUNK_LAYOUT_H_
