// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/uniform_search.h"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "chunk/certificate_builder.h"
#include "chunk/packing_sweep.h"
#include "chunk/pareto_front.h"

namespace castor {
namespace {

ChunkSizeCandidate CandidateOf(const SizePiece& piece,
                               const ModeSearchInput& input) {
  return MakeCandidate({.mode = SearchMode::kUniform,
                        .chunk_size = piece.from,
                        .chunks = piece.chunks,
                        .oversize_chunks = piece.oversize_chunks,
                        .oversize_allocated = piece.oversize_allocated,
                        .oversize_sizes = piece.oversize_classes},
                       input);
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

ModeSearch SearchUniform(const ModeSearchInput& input) {
  const std::vector<SizePiece> pieces =
      SweepChunkSizes(input.sizes, input.min_size, input.max_size, input.pack);
  const size_t best = LeastWaste(pieces);
  SearchCertificate certificate =
      BuildCertificate(pieces, input.max_size, input.payload, input.pack);
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
