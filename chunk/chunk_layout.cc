// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/chunk_layout.h"

#include <cstddef>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

// One chunk against the places of its parameters; returns how many it holds.
size_t CheckChunk(ChunkId id, const ChunkInfo& chunk, const GroupInfo& group,
                  const std::vector<ParamPlace>& places, Elements align) {
  Elements end;
  Elements payload;
  for (const ParamId param : chunk.params) {
    CASTOR_CHECK(param.valid());
    CASTOR_CHECK_LT(param.index(), places.size());
    const ParamPlace& place = places[param.index()];
    CASTOR_CHECK_EQ(place.chunk, id);
    CASTOR_CHECK_GT(place.size, Elements(0));
    CASTOR_CHECK_EQ(place.offset % align, Elements(0));
    CASTOR_CHECK_GE(place.offset, end);
    end = place.offset + place.size;
    payload += place.size;
  }
  CASTOR_CHECK(!chunk.params.empty());
  CASTOR_CHECK_EQ(chunk.used, end);
  CASTOR_CHECK_EQ(chunk.payload, payload);
  CASTOR_CHECK_LE(chunk.used, chunk.size);
  if (chunk.oversize) {
    CASTOR_CHECK_EQ(chunk.params.size(), size_t{1});
    CASTOR_CHECK_GT(chunk.payload, group.chunk_size);
  } else {
    CASTOR_CHECK_EQ(chunk.size, group.chunk_size);
  }
  return chunk.params.size();
}

}  // namespace

ChunkLayout::ChunkLayout(int world, Elements align,
                         std::vector<ParamPlace> places,
                         std::vector<ChunkInfo> chunks,
                         std::vector<GroupInfo> groups)
    : world_(world),
      align_(align),
      places_(std::move(places)),
      chunks_(std::move(chunks)),
      groups_(std::move(groups)) {
  CASTOR_CHECK_GE(world_, 1);
  CASTOR_CHECK_GT(align_, Elements(0));
  CASTOR_CHECK_EQ(align_ % Elements(64), Elements(0));

  size_t listed_chunks = 0;
  size_t placed_params = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const ChunkId id : groups_[g].chunks) {
      CASTOR_CHECK(id.valid());
      CASTOR_CHECK_LT(id.index(), chunks_.size());
      const ChunkInfo& chunk = chunks_[id.index()];
      CASTOR_CHECK_EQ(static_cast<size_t>(chunk.group), g);
      CASTOR_CHECK_EQ(chunk.size % quantum(), Elements(0));
      placed_params += CheckChunk(id, chunk, groups_[g], places_, align_);
    }
    listed_chunks += groups_[g].chunks.size();
  }
  CASTOR_CHECK_EQ(listed_chunks, chunks_.size());

  size_t params_with_size = 0;
  for (const ParamPlace& place : places_) {
    CASTOR_CHECK_GE(place.size, Elements(0));
    CASTOR_CHECK_EQ(place.chunk.valid(), place.size > Elements(0));
    if (place.chunk.valid()) ++params_with_size;
  }
  CASTOR_CHECK_EQ(placed_params, params_with_size);
}

Elements ChunkLayout::quantum() const { return ChunkQuantum(world_); }

DType ChunkLayout::dtype(ChunkId id) const {
  return groups_[static_cast<size_t>(chunk(id).group)].dtype;
}

ShardRange ChunkLayout::shard(ChunkId id, int rank) const {
  CASTOR_CHECK_GE(rank, 0);
  CASTOR_CHECK_LT(rank, world_);
  const Elements size = chunk(id).size / world_;
  return {size * rank, size * (rank + 1)};
}

Elements ChunkLayout::allocated(int32_t group) const {
  Elements sum;
  for (const ChunkId id : groups_[static_cast<size_t>(group)].chunks) {
    sum += chunk(id).size;
  }
  return sum;
}

Elements ChunkLayout::payload(int32_t group) const {
  Elements sum;
  for (const ChunkId id : groups_[static_cast<size_t>(group)].chunks) {
    sum += chunk(id).payload;
  }
  return sum;
}

Bytes ChunkLayout::allocated_bytes() const {
  Bytes sum;
  for (size_t g = 0; g < groups_.size(); ++g) {
    sum += BytesOf(allocated(static_cast<int32_t>(g)), groups_[g].dtype);
  }
  return sum;
}

Bytes ChunkLayout::payload_bytes() const {
  Bytes sum;
  for (size_t g = 0; g < groups_.size(); ++g) {
    sum += BytesToHold(payload(static_cast<int32_t>(g)), groups_[g].dtype);
  }
  return sum;
}

}  // namespace castor
