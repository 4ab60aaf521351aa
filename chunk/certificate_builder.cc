// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/certificate_builder.h"

#include <algorithm>

#include "chunk/base/check.h"

namespace castor {

SearchCertificate BuildCertificate(std::span<const SizePiece> pieces,
                                   Elements max_size, Elements payload,
                                   const PackOptions& options) {
  CASTOR_CHECK(!pieces.empty());
  const Elements quantum = ChunkQuantum(options.world);
  Elements best = pieces.front().AllocatedAtFrom();
  for (const SizePiece& piece : pieces) {
    best = std::min(best, piece.AllocatedAtFrom());
  }

  SearchCertificate certificate;
  certificate.min_size = pieces.front().from;
  certificate.max_size = max_size;
  certificate.lower_bound_waste = best - payload;
  certificate.optimal = true;
  // An interval that starts further left bounds less, so taking as many pieces
  // as the bound bears, from the left, leaves the fewest intervals.
  for (size_t first = 0; first < pieces.size();) {
    const Elements from = pieces[first].from;
    size_t end = first + 1;
    while (end < pieces.size() &&
           pieces[end].oversize_chunks == pieces[first].oversize_chunks &&
           from * pieces[end].chunks + pieces[end].oversize_allocated >= best) {
      ++end;
    }
    const SizePiece& last = pieces[end - 1];
    certificate.intervals.push_back(
        {from, end < pieces.size() ? pieces[end].from - quantum : max_size,
         last.chunks, last.oversize_allocated});
    first = end;
  }
  return certificate;
}

}  // namespace castor
