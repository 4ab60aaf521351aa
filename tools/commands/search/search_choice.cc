// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_packer.h"
#include "chunk/mode_search.h"
#include "chunk/search_mode.h"
#include "chunk/search_result.h"
#include "tools/cli/size_text.h"

namespace castor {
namespace {

// The sum of the distinct sizes of oversize chunks.
Elements OversizeSizes(std::span<const Elements> sizes, Elements chunk_size,
                       Elements quantum) {
  std::set<Elements> distinct;
  for (const Elements size : sizes) {
    if (size > chunk_size) distinct.insert(RoundUp(size, quantum));
  }
  Elements sum;
  for (const Elements size : distinct) sum += size;
  return sum;
}

// What one group costs in chunks of `chunk`, rounded up to a multiple of Q.
Result<ChunkSizeCandidate> OneSize(const SearchReport& report,
                                   const ParamGroup& group, Bytes chunk) {
  const PackOptions& pack = report.options.pack;
  const Elements quantum = ChunkQuantum(pack.world);
  const Bytes quantum_bytes = BytesOf(quantum, group.dtype);
  const Elements size =
      quantum * std::max<int64_t>(1, CeilDiv(chunk, quantum_bytes));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Elements> sizes,
                          GroupSizes(report.model.params, group));
  CASTOR_RETURN_IF_ERROR(ValidatePackSums(sizes, size, group.dtype, pack));
  const PackCount count = CountPacking(sizes, size, pack);
  ModeSearchInput input;
  input.dtype = group.dtype;
  input.gathered_slots = report.options.gathered_slots;
  for (const Elements one : sizes) input.payload += one;
  ChunkSizeCandidate candidate =
      MakeCandidate({.mode = SearchMode::kUniform,
                     .chunk_size = size,
                     .chunks = count.chunks - count.oversize_chunks,
                     .oversize_chunks = count.oversize_chunks,
                     .oversize_allocated = count.oversize_allocated,
                     .oversize_sizes = OversizeSizes(sizes, size, quantum)},
                    input);
  candidate.reason = "as given";
  return candidate;
}

}  // namespace

Result<SearchChoice> MakeChoice(const SearchReport& report, ChoicePick pick,
                                std::optional<Bytes> chunk,
                                std::vector<std::string>* notes) {
  CASTOR_CHECK(chunk.has_value() == (pick == ChoicePick::kChunk));
  const std::vector<ParamGroup> groups = GroupParams(report.model.params);
  CASTOR_CHECK_EQ(groups.size(), report.result.groups.size());
  std::vector<ChunkSizeCandidate> chosen;
  std::vector<Elements> chunk_sizes;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupSearchResult& found = report.result.groups[g];
    if (pick == ChoicePick::kChunk) {
      CASTOR_ASSIGN_OR_RETURN(ChunkSizeCandidate candidate,
                              OneSize(report, groups[g], *chunk));
      if (candidate.chunk_bytes != *chunk) {
        notes->push_back(fmt::format(
            "--chunk {} is no multiple of {} elements; chunks of {} are {}",
            FormatSizeExact(*chunk),
            ChunkQuantum(report.options.pack.world).count(), GroupName(found),
            FormatSizeExact(candidate.chunk_bytes)));
      }
      chosen.push_back(std::move(candidate));
    } else {
      chosen.push_back(pick == ChoicePick::kBest ? found.best
                                                 : found.recommended);
    }
    chunk_sizes.push_back(chosen.back().chunk_size);
  }
  CASTOR_ASSIGN_OR_RETURN(
      ChunkLayout layout,
      PackChunks(report.model.params, chunk_sizes, report.options.pack));
  return SearchChoice{pick, std::move(chosen), std::move(layout)};
}

}  // namespace castor
