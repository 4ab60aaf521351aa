// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/layout_digest.h"

#include "collectives/world/value_hash.h"

namespace castor::internal {

uint64_t LayoutDigest(const ChunkLayout& layout) {
  ValueHash hash;
  // Lengths first, so that no two layouts give the same numbers.
  hash.Add(layout.world());
  hash.Add(layout.align().count());
  hash.Add(layout.groups().size());
  hash.Add(layout.chunks().size());
  hash.Add(layout.places().size());
  for (const GroupInfo& group : layout.groups()) {
    hash.Add(group.dtype);
    hash.Add(group.trainable);
    hash.Add(group.chunk_size.count());
    hash.Add(group.states);
    hash.Add(group.moments8);
  }
  for (const ChunkInfo& chunk : layout.chunks()) {
    hash.Add(chunk.group);
    hash.Add(chunk.size.count());
  }
  for (const ParamPlace& place : layout.places()) {
    hash.Add(place.chunk.value());
    hash.Add(place.offset.count());
    hash.Add(place.size.count());
  }
  return hash.value();
}

}  // namespace castor::internal
