// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYOUT_WASTE_BREAKDOWN_H_
#define CASTOR_CHUNK_LAYOUT_WASTE_BREAKDOWN_H_

// Beside chunk_layout.h. Why a layout wastes what it wastes, chunk by chunk.
// Every element that no parameter has is of one of three kinds, and they sum to
// the waste exactly:
//
//   alignment  between two parameters, where the next starts at a multiple of A
//   tail       from the last parameter to the end of a chunk of C
//   rounding   the same in an oversize chunk: its size is a multiple of Q
//
// Elements are those of the chunk's group. Pure function, thread-safe.

#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"

namespace castor {

struct ChunkWaste {
  ChunkId chunk;
  Elements alignment;
  Elements tail;      // zero in an oversize chunk
  Elements rounding;  // zero in any other

  Elements total() const { return alignment + tail + rounding; }
};

// Sums over the chunks of one group.
struct GroupWaste {
  Elements alignment;
  Elements tail;
  Elements rounding;

  Elements total() const { return alignment + tail + rounding; }
};

struct WasteBreakdown {
  std::vector<ChunkWaste> chunks;  // by ChunkId
  std::vector<GroupWaste> groups;  // as ChunkLayout::groups() has them
};

WasteBreakdown BreakDownWaste(const ChunkLayout& layout);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYOUT_WASTE_BREAKDOWN_H_
