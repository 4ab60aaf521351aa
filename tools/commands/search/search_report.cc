// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_report.h"

#include <fmt/format.h>

#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"

namespace castor {

std::string_view ChoicePickName(ChoicePick pick) {
  switch (pick) {
    case ChoicePick::kRecommended:
      return "recommended";
    case ChoicePick::kBest:
      return "best";
    case ChoicePick::kChunk:
      return "chunk";
  }
  return "unknown";
}

std::string_view ChoicePickText(ChoicePick pick) {
  return pick == ChoicePick::kChunk ? "--chunk" : ChoicePickName(pick);
}

std::string_view ExpertLayoutName(ExpertLayout layout) {
  return layout == ExpertLayout::kFused ? "fused" : "per-expert";
}

std::string GroupName(const GroupSearchResult& group) {
  return fmt::format("{}{}", DTypeName(group.dtype),
                     group.trainable ? "" : " frozen");
}

bool SameChoice(const ChunkSizeCandidate& a, const ChunkSizeCandidate& b) {
  return a.mode == b.mode && a.chunk_size == b.chunk_size;
}

ModelTotals TotalsOf(const ModelList& model) {
  ModelTotals totals;
  for (const ParamSpec& spec : model.params) {
    // The reader has refused shapes that overflow.
    const Elements count = CountElements(spec.shape, spec.dtype).value();
    totals.elements += count.count();
    totals.bytes += BytesOf(count, spec.dtype);
  }
  return totals;
}

double ChoiceTotals::waste_fraction() const {
  if (allocated == Bytes(0)) return 0;
  return static_cast<double>(waste.count()) /
         static_cast<double>(allocated.count());
}

ChoiceTotals TotalsOf(const SearchResult& result,
                      ChunkSizeCandidate GroupSearchResult::*choice) {
  ChoiceTotals totals;
  for (const GroupSearchResult& group : result.groups) {
    const ChunkSizeCandidate& chosen = group.*choice;
    totals.chunks += chosen.chunks;
    totals.allocated += BytesToHold(chosen.allocated, group.dtype);
    totals.waste += chosen.waste_bytes;
    totals.gathered += chosen.gathered_bytes;
  }
  return totals;
}

}  // namespace castor
