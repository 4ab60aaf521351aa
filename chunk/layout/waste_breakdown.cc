// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/layout/waste_breakdown.h"

#include <cstddef>
#include <cstdint>

#include "chunk/base/check.h"

namespace castor {

WasteBreakdown BreakDownWaste(const ChunkLayout& layout) {
  WasteBreakdown breakdown;
  breakdown.chunks.reserve(layout.chunks().size());
  breakdown.groups.resize(layout.groups().size());
  for (size_t c = 0; c < layout.chunks().size(); ++c) {
    const ChunkInfo& info = layout.chunks()[c];
    ChunkWaste waste;
    waste.chunk = ChunkId(static_cast<int32_t>(c));
    // Up to `used`, what is not a parameter lies between two.
    waste.alignment = info.used - info.payload;
    (info.oversize ? waste.rounding : waste.tail) = info.size - info.used;
    GroupWaste& group = breakdown.groups[static_cast<size_t>(info.group)];
    group.alignment += waste.alignment;
    group.tail += waste.tail;
    group.rounding += waste.rounding;
    breakdown.chunks.push_back(waste);
  }
  for (size_t g = 0; g < breakdown.groups.size(); ++g) {
    CASTOR_CHECK_EQ(breakdown.groups[g].total(),
                    layout.waste(static_cast<int32_t>(g)));
  }
  return breakdown;
}

}  // namespace castor
