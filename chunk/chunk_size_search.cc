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

// The sizes of a family that are searched: min rounded up, max down. A size
// whose shards hold each parameter that stays whole goes before both.
Result<SizeRange> AllowedSizes(const SearchOptions& options,
                               const SizeFamily& family) {
  const Elements quantum = family.quantum;
  const Bytes quantum_bytes = BytesOf(quantum, family.dtype);
  SizeRange range = {quantum * CeilDiv(options.min_chunk, quantum_bytes),
                     quantum * (options.max_chunk / quantum_bytes)};
  range.min = std::max(range.min, family.least);
  if (family.whole > 0 && range.max < family.least) range.max = range.min;
  if (range.min <= range.max) return range;
  return InvalidArgument(fmt::format(
      "no chunk size of {} between {} and {} bytes is a multiple of {} "
      "elements "
      "({} bytes, 128 elements for each of {} ranks); give a larger maximum or "
      "a smaller minimum",
      DTypeName(family.dtype), options.min_chunk.count(),
      options.max_chunk.count(), quantum.count(), quantum_bytes.count(),
      options.pack.world));
}

Status ValidateSearchOptions(const SearchOptions& options) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options.pack));
  if (options.min_chunk < Bytes(0) || options.max_chunk < options.min_chunk ||
      options.max_chunk > kLargestChunk) {
    return InvalidArgument(fmt::format(
        "chunk sizes from {} to {} bytes: the minimum must be zero or more and "
        "at most the maximum, which must be at most {}",
        options.min_chunk.count(), options.max_chunk.count(),
        kLargestChunk.count()));
  }
  if (options.modes.empty() || options.gathered_slots < 1) {
    return InvalidArgument(fmt::format(
        "{} modes and {} gathered slots: one or more of each is needed",
        options.modes.size(), options.gathered_slots));
  }
  return OkStatus();
}

ModeSearchInput InputOf(const SizeFamily& family, const PackOptions& pack,
                        int64_t gathered_slots) {
  ModeSearchInput input;
  input.groups = family.packed;
  for (const PackedGroup& group : family.packed) {
    for (const Elements size : group.sizes) input.payload += size;
  }
  input.dtype = family.dtype;
  input.quantum = family.quantum;
  input.pack = pack;
  input.gathered_slots = gathered_slots;
  return input;
}

// Whether one ordinary chunk of that size holds all of each group: then every
// larger size does.
bool OneHoldsEachGroup(const ModeSearchInput& input, Elements chunk_size) {
  return std::all_of(
      input.groups.begin(), input.groups.end(), [&](const PackedGroup& group) {
        const PackCount count =
            CountPacking(group.sizes, chunk_size, input.pack, group.whole);
        return count.chunks <= 1 && count.oversize_chunks == 0;
      });
}

// Where one chunk of less than min holds each group, the least size of which
// that is true is searched alone. `least`: that the family allows.
ModeSearch SearchOneSize(ModeSearchInput input, Elements least) {
  Elements below = least - input.quantum;
  Elements holds = input.min_size;
  while (holds - below > input.quantum && OneHoldsEachGroup(input, holds)) {
    const Elements middle =
        below + input.quantum * ((holds - below) / input.quantum / 2);
    (OneHoldsEachGroup(input, middle) ? holds : below) = middle;
  }
  if (holds == input.min_size) return SearchUniform(input);
  input.min_size = holds;
  input.max_size = holds;
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

Result<GroupSearchResult> SearchFamily(const SizeFamily& family,
                                       const SearchOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(const SizeRange range, AllowedSizes(options, family));
  CASTOR_RETURN_IF_ERROR(ValidateFamilySums(family, range.max, options.pack));
  GroupSearchResult result;
  result.dtype = family.dtype;
  result.trainable = family.trainable;
  for (const PackedGroup& group : family.packed) {
    result.params += static_cast<int64_t>(group.sizes.size());
  }
  ModeSearchInput input = InputOf(family, options.pack, options.gathered_slots);
  input.min_size = range.min;
  input.max_size = range.max;
  result.payload = input.payload;

  const auto asked = [&options](SearchMode mode) {
    return std::find(options.modes.begin(), options.modes.end(), mode) !=
           options.modes.end();
  };
  if (asked(SearchMode::kUniform)) {
    Add(SearchOneSize(input, family.least), &result);
  }
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
        result.params, family.trainable ? "trainable" : "frozen",
        DTypeName(family.dtype)));
  }
  result.candidates = Merge(std::move(result.candidates), result.modes);
  return result;
}

}  // namespace

Result<SearchResult> SearchChunkSize(std::span<const ParamSpec> params,
                                     const SearchOptions& options) {
  CASTOR_RETURN_IF_ERROR(ValidateSearchOptions(options));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<SizeFamily> families,
                          SizeFamilies(params, options.pack));
  SearchResult result;
  for (const SizeFamily& family : families) {
    CASTOR_ASSIGN_OR_RETURN(GroupSearchResult found,
                            SearchFamily(family, options));
    result.groups.push_back(std::move(found));
  }
  CASTOR_RETURN_IF_ERROR(Recommend(options.device_budget, &result));
  return result;
}

Result<ChunkSizeCandidate> CostOfChunkSize(const SizeFamily& family,
                                           Elements chunk_size,
                                           const PackOptions& pack,
                                           int64_t gathered_slots) {
  CASTOR_RETURN_IF_ERROR(ValidateFamilySums(family, chunk_size, pack));
  return CandidateAt(SearchMode::kUniform, chunk_size,
                     InputOf(family, pack, gathered_slots));
}

}  // namespace castor
