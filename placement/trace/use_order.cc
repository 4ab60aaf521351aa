// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/use_order.h"

#include <cstdint>

namespace castor {

std::vector<ChunkId> OrderOfFirstUses(const Trace& trace, size_t chunks) {
  std::vector<ChunkId> order;
  order.reserve(chunks);
  std::vector<bool> seen(chunks, false);
  const auto add = [&](ChunkId chunk) {
    if (seen[chunk.index()]) return;
    seen[chunk.index()] = true;
    order.push_back(chunk);
  };
  for (const Access& access : trace) {
    if (access.kind == AccessKind::kUse) add(access.chunk);
  }
  for (size_t c = 0; c < chunks; ++c) add(ChunkId(static_cast<int32_t>(c)));
  return order;
}

}  // namespace castor
