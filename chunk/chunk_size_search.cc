// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/chunk_size_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "chunk/certificate_builder.h"
#include "chunk/packing_sweep.h"
#include "chunk/pareto_front.h"
#include "chunk/recommendation.h"

namespace castor {
namespace {

struct SizeRange {
  Elements min;
  Elements max;
};

// The allowed sizes of a group: min rounded up to Q, max down.
Result<SizeRange> AllowedSizes(const SearchOptions& options, DType dtype) {
  const Elements quantum = ChunkQuantum(options.pack.world);
  const Bytes quantum_bytes = BytesOf(quantum, dtype);
  const SizeRange range = {
      quantum * std::max<int64_t>(1, CeilDiv(options.min_chunk, quantum_bytes)),
      quantum * (options.max_chunk / quantum_bytes)};
  if (range.min <= range.max) return range;
  return InvalidArgument(fmt::format(
      "no chunk size of {} between {} and {} bytes is a multiple of {} "
      "elements "
      "({} bytes, 128 elements for each of {} ranks); give a larger maximum or "
      "a smaller minimum",
      DTypeName(dtype), options.min_chunk.count(), options.max_chunk.count(),
      quantum.count(), quantum_bytes.count(), options.pack.world));
}

Status ValidateSearchOptions(const SearchOptions& options) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options.pack));
  constexpr Bytes kLargest = GiB(1) * (1 << 20);  // 1 PiB
  if (options.min_chunk < Bytes(0) || options.max_chunk < options.min_chunk ||
      options.max_chunk > kLargest) {
    return InvalidArgument(fmt::format(
        "chunk sizes from {} to {} bytes: the minimum must be zero or more and "
        "at most the maximum, which must be at most {}",
        options.min_chunk.count(), options.max_chunk.count(),
        kLargest.count()));
  }
  return OkStatus();
}

// Where the group's last parameter ends when all share one chunk.
Elements PackedSize(std::span<const Elements> sizes, Elements align) {
  Elements end;
  for (const Elements size : sizes) {
    if (size > Elements(0)) end = RoundUp(end, align) + size;
  }
  return end;
}

ChunkSizeCandidate MakeCandidate(const SizePiece& piece, Elements payload,
                                 DType dtype) {
  ChunkSizeCandidate candidate;
  candidate.chunk_size = piece.from;
  candidate.chunk_bytes = BytesOf(piece.from, dtype);
  candidate.chunks = piece.chunks + piece.oversize_chunks;
  candidate.oversize_chunks = piece.oversize_chunks;
  candidate.allocated = piece.AllocatedAtFrom();
  candidate.waste = candidate.allocated - payload;
  candidate.waste_bytes = BytesToHold(candidate.waste, dtype);
  if (candidate.allocated > Elements(0)) {
    candidate.waste_fraction = static_cast<double>(candidate.waste.count()) /
                               static_cast<double>(candidate.allocated.count());
  }
  candidate.gathered_bytes =
      BytesOf(piece.from * 3 + piece.oversize_classes, dtype);
  return candidate;
}

// The index of the piece that wastes least, ties to the smallest chunk.
size_t LeastWaste(std::span<const SizePiece> pieces) {
  size_t best = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].AllocatedAtFrom() < pieces[best].AllocatedAtFrom()) best = i;
  }
  return best;
}

// Inside a piece every cost but the count grows with C, so its left end stands
// for it.
std::vector<ChunkSizeCandidate> FrontOf(std::span<const SizePiece> pieces,
                                        size_t best, Elements payload,
                                        DType dtype) {
  std::vector<ParetoPoint> points;
  points.reserve(pieces.size());
  for (const SizePiece& piece : pieces) {
    points.push_back({piece.AllocatedAtFrom().count(),
                      piece.chunks + piece.oversize_chunks,
                      (piece.from * 3 + piece.oversize_classes).count()});
  }
  std::vector<size_t> front = ParetoFront(points);
  const auto at = std::lower_bound(front.begin(), front.end(), best);
  if (at == front.end() || *at != best) front.insert(at, best);
  std::vector<ChunkSizeCandidate> candidates;
  candidates.reserve(front.size());
  for (const size_t i : front) {
    candidates.push_back(MakeCandidate(pieces[i], payload, dtype));
  }
  return candidates;
}

Result<GroupSearchResult> SearchGroup(std::span<const ParamSpec> params,
                                      const ParamGroup& group,
                                      const SearchOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(SizeRange range, AllowedSizes(options, group.dtype));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Elements> sizes,
                          GroupSizes(params, group));
  CASTOR_RETURN_IF_ERROR(
      ValidatePackSums(sizes, range.max, group.dtype, options.pack));
  GroupSearchResult result;
  result.dtype = group.dtype;
  result.trainable = group.trainable;
  result.params = static_cast<int64_t>(sizes.size());
  for (const Elements size : sizes) result.payload += size;

  const Elements packed = PackedSize(sizes, options.pack.align);
  const bool one_chunk = packed < range.min;
  if (one_chunk) {
    const Elements quantum = ChunkQuantum(options.pack.world);
    range.min = std::max(RoundUp(packed, quantum), quantum);
    range.max = range.min;
  }
  const std::vector<SizePiece> pieces =
      SweepChunkSizes(sizes, range.min, range.max, options.pack);
  const size_t best = LeastWaste(pieces);
  result.candidates = FrontOf(pieces, best, result.payload, group.dtype);
  result.certificate =
      BuildCertificate(pieces, range.max, result.payload, options.pack);
  if (one_chunk) {
    result.candidates.front().reason = "the whole group is below the minimum";
  }
  return result;
}

}  // namespace

Result<SearchResult> SearchChunkSize(std::span<const ParamSpec> params,
                                     const SearchOptions& options) {
  CASTOR_RETURN_IF_ERROR(ValidateSearchOptions(options));
  SearchResult result;
  for (const ParamGroup& group : GroupParams(params)) {
    CASTOR_ASSIGN_OR_RETURN(GroupSearchResult found,
                            SearchGroup(params, group, options));
    result.groups.push_back(std::move(found));
  }
  CASTOR_RETURN_IF_ERROR(Recommend(options.device_budget, &result));
  return result;
}

}  // namespace castor
