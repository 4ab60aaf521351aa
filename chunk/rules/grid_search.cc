// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/grid_search.h"

#include <algorithm>

#include "chunk/base/check.h"

namespace castor {
namespace {

struct Packed {
  Elements waste;
  // The least larger size at which the packing is another.
  Elements changes_at;
};

Packed Pack(std::span<const Elements> sizes, Elements chunk_size,
            Elements never) {
  Packed packed{Elements(0), never};
  Elements left;
  bool open = false;
  for (const Elements size : sizes) {
    if (size > left) {
      packed.waste += left;
      if (open) {  // with what is missing, the chunk would take it
        packed.changes_at =
            std::min(packed.changes_at, chunk_size + (size - left));
      }
      left = chunk_size;
      open = true;
    }
    left -= size;
  }
  packed.waste += left;
  return packed;
}

}  // namespace

GridChoice LeastWasteOnGrid(std::span<const Elements> sizes, Elements first,
                            Elements last, Elements step) {
  CASTOR_CHECK_GT(first, Elements(0));
  CASTOR_CHECK_LE(first, last);
  CASTOR_CHECK_GT(step, Elements(0));
  for (const Elements size : sizes) {
    CASTOR_CHECK_GE(size, Elements(0));
    CASTOR_CHECK_LE(size, first);
  }
  GridChoice best;
  const Elements never = last + step;
  for (Elements size = first; size <= last;) {
    const Packed packed = Pack(sizes, size, never);
    if (best.evaluations == 0 || packed.waste < best.waste) {
      best.chunk_size = size;
      best.waste = packed.waste;
    }
    ++best.evaluations;
    size = first + RoundUp(packed.changes_at - first, step);
  }
  return best;
}

}  // namespace castor
