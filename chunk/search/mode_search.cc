// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/mode_search.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "chunk/search/family_pieces.h"
#include "chunk/search/pareto_front.h"

namespace castor {

ChunkSizeCandidate MakeCandidate(SearchMode mode, const SizePiece& piece,
                                 const ModeSearchInput& input) {
  ChunkSizeCandidate candidate;
  candidate.mode = mode;
  candidate.chunk_size = piece.from;
  candidate.chunk_bytes = BytesOf(candidate.chunk_size, input.dtype);
  candidate.chunks = piece.chunks + piece.oversize_chunks;
  candidate.oversize_chunks = piece.oversize_chunks;
  candidate.oversize_allocated = piece.oversize_allocated;
  candidate.allocated = piece.AllocatedAtFrom();
  candidate.waste = candidate.allocated - input.payload;
  candidate.waste_bytes = BytesToHold(candidate.waste, input.dtype);
  if (candidate.allocated > Elements(0)) {
    candidate.waste_fraction = static_cast<double>(candidate.waste.count()) /
                               static_cast<double>(candidate.allocated.count());
  }
  candidate.gathered_bytes = BytesOf(
      candidate.chunk_size * input.gathered_slots + piece.oversize_classes,
      input.dtype);
  return candidate;
}

ChunkSizeCandidate CandidateAt(SearchMode mode, Elements chunk_size,
                               const ModeSearchInput& input) {
  return MakeCandidate(mode,
                       FamilyPieces(input.groups, chunk_size, chunk_size,
                                    input.quantum, input.pack)
                           .front(),
                       input);
}

std::vector<ChunkSizeCandidate> FrontOf(
    std::vector<ChunkSizeCandidate> candidates) {
  if (candidates.empty()) return candidates;
  std::sort(candidates.begin(), candidates.end(),
            [](const ChunkSizeCandidate& a, const ChunkSizeCandidate& b) {
              const auto key = [](const ChunkSizeCandidate& c) {
                return std::tuple(c.chunk_size, c.mode, c.waste, c.chunks,
                                  c.gathered_bytes);
              };
              return key(a) < key(b);
            });
  std::vector<ParetoPoint> points;
  points.reserve(candidates.size());
  size_t best = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const ChunkSizeCandidate& candidate = candidates[i];
    points.push_back({candidate.waste.count(), candidate.chunks,
                      candidate.gathered_bytes.count()});
    if (candidate.waste < candidates[best].waste) best = i;
  }
  std::vector<size_t> front = ParetoFront(points);
  const auto at = std::lower_bound(front.begin(), front.end(), best);
  if (at == front.end() || *at != best) front.insert(at, best);
  std::vector<ChunkSizeCandidate> kept;
  kept.reserve(front.size());
  for (const size_t i : front) kept.push_back(std::move(candidates[i]));
  return kept;
}

}  // namespace castor
