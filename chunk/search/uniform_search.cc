// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/search/family_pieces.h"
#include "chunk/search/mode_search.h"
#include "chunk/search/pareto_front.h"

namespace castor {
namespace {

ChunkSizeCandidate CandidateOf(const SizePiece& piece,
                               const ModeSearchInput& input) {
  return MakeCandidate(SearchMode::kUniform, piece, input);
}

// Inside a piece every cost but the count grows with C, so its left end stands
// for it. Of many pieces few are worth a candidate.
std::vector<ChunkSizeCandidate> CandidatesOf(std::span<const SizePiece> pieces,
                                             size_t best,
                                             const ModeSearchInput& input) {
  std::vector<ParetoPoint> points;
  points.reserve(pieces.size());
  for (const SizePiece& piece : pieces) {
    points.push_back(
        {piece.AllocatedAtFrom().count(), piece.chunks + piece.oversize_chunks,
         (piece.from * input.gathered_slots + piece.oversize_classes).count()});
  }
  std::vector<ChunkSizeCandidate> candidates;
  for (const size_t i : ParetoFront(points)) {
    candidates.push_back(CandidateOf(pieces[i], input));
  }
  candidates.push_back(CandidateOf(pieces[best], input));
  return FrontOf(std::move(candidates));
}

// The index of the piece that wastes least, ties to the smallest chunk.
size_t LeastWaste(std::span<const SizePiece> pieces) {
  size_t best = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].AllocatedAtFrom() < pieces[best].AllocatedAtFrom()) best = i;
  }
  return best;
}

}  // namespace

SearchCertificate BuildCertificate(std::span<const SizePiece> pieces,
                                   Elements max_size, Elements payload,
                                   Elements quantum) {
  CASTOR_CHECK(!pieces.empty());
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

ModeSearch SearchUniform(const ModeSearchInput& input) {
  const std::vector<SizePiece> pieces = FamilyPieces(
      input.groups, input.min_size, input.max_size, input.quantum, input.pack);
  const size_t best = LeastWaste(pieces);
  SearchCertificate certificate =
      BuildCertificate(pieces, input.max_size, input.payload, input.quantum);
  ModeSearch search;
  search.candidates = CandidatesOf(pieces, best, input);
  search.result.mode = SearchMode::kUniform;
  search.result.best = CandidateOf(pieces[best], input);
  search.result.lower_bound_waste = certificate.lower_bound_waste;
  search.result.optimal = certificate.optimal;
  search.result.certificate = std::move(certificate);
  return search;
}

}  // namespace castor
