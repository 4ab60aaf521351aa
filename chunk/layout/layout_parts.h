// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_LAYOUT_LAYOUT_PARTS_H_
#define CASTOR_CHUNK_LAYOUT_LAYOUT_PARTS_H_

// Part of reading layouts (layout_file.h).
// A layout as somebody states it, in pieces that may contradict each other, and
// the check that they do not. ChunkLayout takes such pieces from Castor's own
// packer and CHECKs them; what comes from elsewhere goes through here first.
// Values and a pure function, thread-safe.

#include <cstdint>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"

namespace castor {

struct LayoutParts {
  struct Group {
    DType dtype = DType::kF32;
    bool trainable = true;
    int64_t chunk_elements = 0;  // C
    bool moments8 = false;
  };
  struct Chunk {
    int64_t group = 0;
    int64_t elements = 0;
    bool oversize = false;
  };
  // Both -1 for a parameter without elements, which no chunk holds.
  struct Place {
    int64_t chunk = -1;
    int64_t offset = -1;
  };

  int64_t world = 0;
  int64_t align = 0;
  int64_t quantum = 0;
  std::vector<Group> groups;
  std::vector<Chunk> chunks;
  std::vector<ParamSpec> params;
  std::vector<Place> places;  // of params
};

// The layout, or Malformed with the first contradiction, naming the group, the
// chunk or the parameter. Any numbers will do: none overflows, and no memory is
// taken but in proportion to the parts. REQUIRES: a place for every parameter;
// fewer than 2^31 parameters and chunks.
Result<ChunkLayout> AssembleLayout(const LayoutParts& parts);

}  // namespace castor

#endif  // CASTOR_CHUNK_LAYOUT_LAYOUT_PARTS_H_
