// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/chunk_size_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "chunk/search/mode_search.h"
#include "chunk/search/recommendation.h"

namespace castor {
namespace {

// Smaller chunks than this and the least one are not recommended: with them, a
// step has more transfers than it needs to overlap.
constexpr Bytes kSmallChunk = MiB(8);

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
  if (options.modes.empty() || options.gathered_slots < 1) {
    return InvalidArgument(fmt::format(
        "{} modes and {} gathered slots: one or more of each is needed",
        options.modes.size(), options.gathered_slots));
  }
  return OkStatus();
}

ModeSearchInput InputOf(std::span<const Elements> sizes, DType dtype,
                        const PackOptions& pack, int64_t gathered_slots) {
  ModeSearchInput input;
  input.sizes = sizes;
  for (const Elements size : sizes) input.payload += size;
  input.dtype = dtype;
  input.pack = pack;
  input.gathered_slots = gathered_slots;
  return input;
}

// Where the group's last parameter ends when all share one chunk.
Elements PackedSize(std::span<const Elements> sizes, Elements align) {
  Elements end;
  for (const Elements size : sizes) {
    if (size > Elements(0)) end = RoundUp(end, align) + size;
  }
  return end;
}

// A group whose packed size is below the least allowed one is one chunk.
ModeSearch SearchOneSize(ModeSearchInput input) {
  const Elements packed = PackedSize(input.sizes, input.pack.align);
  if (packed >= input.min_size) return SearchUniform(input);
  const Elements quantum = ChunkQuantum(input.pack.world);
  input.min_size = std::max(RoundUp(packed, quantum), quantum);
  input.max_size = input.min_size;
  ModeSearch found = SearchUniform(input);
  const char* const reason = "the whole group is below the minimum";
  for (ChunkSizeCandidate& only : found.candidates) only.reason = reason;
  found.result.best.reason = reason;
  return found;
}

// Adds what one mode found to what the others did.
void Add(ModeSearch found, GroupSearchResult* result) {
  std::move(found.candidates.begin(), found.candidates.end(),
            std::back_inserter(result->candidates));
  result->modes.push_back(std::move(found.result));
}

// Which sizes of the layer mode, which knows no bounds, may be recommended.
void MarkWhatSuits(const SearchOptions& options, ModeSearch* layers) {
  const auto mark = [&options](ChunkSizeCandidate* candidate) {
    candidate->suits =
        candidate->chunk_bytes >= std::min(options.min_chunk, kSmallChunk) &&
        candidate->chunk_bytes <= options.max_chunk;
  };
  for (ChunkSizeCandidate& candidate : layers->candidates) mark(&candidate);
  mark(&layers->result.best);
}

// The front of all modes and the best of each, by chunk size.
std::vector<ChunkSizeCandidate> Merge(
    std::vector<ChunkSizeCandidate> candidates,
    std::span<const ModeResult> modes) {
  std::vector<ChunkSizeCandidate> merged = FrontOf(std::move(candidates));
  for (const ModeResult& mode : modes) {
    const auto same = [&mode](const ChunkSizeCandidate& candidate) {
      return candidate.mode == mode.mode &&
             candidate.chunk_size == mode.best.chunk_size &&
             candidate.waste == mode.best.waste;
    };
    if (std::none_of(merged.begin(), merged.end(), same)) {
      merged.push_back(mode.best);
    }
  }
  std::sort(merged.begin(), merged.end(),
            [](const ChunkSizeCandidate& a, const ChunkSizeCandidate& b) {
              return std::tuple(a.chunk_size, a.mode, a.waste, a.chunks) <
                     std::tuple(b.chunk_size, b.mode, b.waste, b.chunks);
            });
  return merged;
}

Result<GroupSearchResult> SearchGroup(std::span<const ParamSpec> params,
                                      const ParamGroup& group,
                                      const SearchOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(const SizeRange range,
                          AllowedSizes(options, group.dtype));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Elements> sizes,
                          GroupSizes(params, group));
  CASTOR_RETURN_IF_ERROR(
      ValidatePackSums(sizes, range.max, group.dtype, options.pack));
  GroupSearchResult result;
  result.dtype = group.dtype;
  result.trainable = group.trainable;
  result.params = static_cast<int64_t>(sizes.size());
  ModeSearchInput input =
      InputOf(sizes, group.dtype, options.pack, options.gathered_slots);
  input.min_size = range.min;
  input.max_size = range.max;
  result.payload = input.payload;

  const auto asked = [&options](SearchMode mode) {
    return std::find(options.modes.begin(), options.modes.end(), mode) !=
           options.modes.end();
  };
  if (asked(SearchMode::kUniform)) Add(SearchOneSize(input), &result);
  if (asked(SearchMode::kLayer)) {
    std::optional<ModeSearch> found = SearchLayer(input);
    if (found) {
      MarkWhatSuits(options, &*found);
      Add(*std::move(found), &result);
    }
  }
  if (result.modes.empty()) {
    return Infeasible(fmt::format(
        "no sequence of sizes repeats back to back among the {} {} {} "
        "parameters, so the layer mode has no chunk size for them; ask for the "
        "uniform mode too",
        sizes.size(), group.trainable ? "trainable" : "frozen",
        DTypeName(group.dtype)));
  }
  result.candidates = Merge(std::move(result.candidates), result.modes);
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

Result<ChunkSizeCandidate> CostOfChunkSize(std::span<const ParamSpec> params,
                                           const ParamGroup& group,
                                           Elements chunk_size,
                                           const PackOptions& pack,
                                           int64_t gathered_slots) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Elements> sizes,
                          GroupSizes(params, group));
  CASTOR_RETURN_IF_ERROR(
      ValidatePackSums(sizes, chunk_size, group.dtype, pack));
  return CandidateAt(SearchMode::kUniform, chunk_size,
                     InputOf(sizes, group.dtype, pack, gathered_slots));
}

}  // namespace castor
