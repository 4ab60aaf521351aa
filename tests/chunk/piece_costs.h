// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_CHUNK_PIECE_COSTS_H_
#define CASTOR_TESTS_CHUNK_PIECE_COSTS_H_

// What the pieces of a sweep say of one size, to compare with brute force.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/search/packing_sweep.h"
#include "tests/chunk/naive_packing.h"

namespace castor {

// The costs at `size` by the last piece that starts at or before it.
inline NaiveCost CostBy(const std::vector<SizePiece>& pieces, int64_t size) {
  size_t i = 0;
  while (i + 1 < pieces.size() && pieces[i + 1].from.count() <= size) ++i;
  const SizePiece& piece = pieces[i];
  return {size,
          piece.chunks + piece.oversize_chunks,
          piece.oversize_chunks,
          piece.oversize_allocated.count(),
          size * piece.chunks + piece.oversize_allocated.count(),
          3 * size + piece.oversize_classes.count()};
}

}  // namespace castor

#endif  // CASTOR_TESTS_CHUNK_PIECE_COSTS_H_
