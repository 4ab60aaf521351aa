// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/waste_breakdown.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/cli/text_table.h"

namespace castor {
namespace {

struct Causes {
  Bytes tail;
  Bytes alignment;
  Bytes rounding;

  Bytes total() const { return tail + alignment + rounding; }
};

Causes CausesOf(const WasteBreakdown& waste, const ChunkLayout& layout) {
  Causes causes;
  for (size_t g = 0; g < waste.groups.size(); ++g) {
    const GroupWaste& group = waste.groups[g];
    const DType dtype = layout.groups()[g].dtype;
    causes.tail += BytesToHold(group.tail, dtype);
    causes.alignment += BytesToHold(group.alignment, dtype);
    causes.rounding += BytesToHold(group.rounding, dtype);
  }
  return causes;
}

// The end of a long name tells more than its beginning.
std::string Shortened(const std::string& name) {
  constexpr size_t kColumns = 36;
  const std::string shown = Shown(name);
  if (shown.size() <= kColumns) return shown;
  size_t from = shown.size() - (kColumns - 3);
  // Not inside a character.
  while (from < shown.size() && (shown[from] & 0xC0) == 0x80) ++from;
  return "..." + shown.substr(from);
}

std::string ParamsText(const SearchReport& report, const ChunkInfo& chunk) {
  std::string text =
      Shortened(report.model.params[chunk.params.front().index()].name);
  if (chunk.params.size() > 1) {
    text += fmt::format(", +{}", chunk.params.size() - 1);
  }
  return text;
}

// The chunks that waste most, ties in their order.
std::vector<ChunkWaste> Worst(const WasteBreakdown& waste,
                              const ChunkLayout& layout, size_t rows) {
  std::vector<ChunkWaste> chunks;
  for (const ChunkWaste& chunk : waste.chunks) {
    if (chunk.total() > Elements(0)) chunks.push_back(chunk);
  }
  const auto bytes = [&layout](const ChunkWaste& chunk) {
    return BytesToHold(chunk.total(), layout.dtype(chunk.chunk));
  };
  std::sort(chunks.begin(), chunks.end(),
            [&bytes](const ChunkWaste& a, const ChunkWaste& b) {
              const Bytes of_a = bytes(a);
              const Bytes of_b = bytes(b);
              return of_a != of_b ? of_a > of_b : a.chunk < b.chunk;
            });
  if (chunks.size() > rows) chunks.resize(rows);
  return chunks;
}

}  // namespace

std::string ExplainText(const SearchReport& report, const SearchChoice& choice,
                        size_t rows) {
  const ChunkLayout& layout = choice.layout;
  const WasteBreakdown waste = BreakDownWaste(layout);
  const Causes causes = CausesOf(waste, layout);
  const auto share = [&causes](Bytes part) {
    if (causes.total() == Bytes(0)) return std::string();
    return fmt::format(" ({})",
                       Percent(static_cast<double>(part.count()) /
                               static_cast<double>(causes.total().count())));
  };
  std::string text =
      "\n" + Paragraph("Waste",
                       fmt::format(
                           "of {}: {} = tails {}{} + alignment {}{} + "
                           "oversize rounding {}{}",
                           choice.pick == ChoicePick::kChunk
                               ? "--chunk"
                               : ChoicePickName(choice.pick),
                           FormatSize(causes.total()), FormatSize(causes.tail),
                           share(causes.tail), FormatSize(causes.alignment),
                           share(causes.alignment), FormatSize(causes.rounding),
                           share(causes.rounding)));
  using Align = TextTable::Align;
  TextTable table({{"chunk"},
                   {"size"},
                   {"wasted"},
                   {"tail"},
                   {"alignment"},
                   {"parameters", Align::kLeft}});
  const std::vector<ChunkWaste> worst = Worst(waste, layout, rows);
  for (const ChunkWaste& one : worst) {
    const ChunkInfo& chunk = layout.chunk(one.chunk);
    const DType dtype = layout.dtype(one.chunk);
    table.AddRow({Grouped(static_cast<int64_t>(one.chunk.index())),
                  FormatSize(BytesToHold(chunk.size, dtype)),
                  FormatSize(BytesToHold(one.total(), dtype)),
                  FormatSize(BytesToHold(one.tail + one.rounding, dtype)),
                  FormatSize(BytesToHold(one.alignment, dtype)),
                  ParamsText(report, chunk)});
  }
  if (!worst.empty()) text += table.Render(Emphasis::kNone);
  return text;
}

JsonValue ExplainJson(const SearchReport& report, const SearchChoice& choice) {
  const ChunkLayout& layout = choice.layout;
  const WasteBreakdown waste = BreakDownWaste(layout);
  const Causes causes = CausesOf(waste, layout);
  JsonValue json;
  json["pick"] = ChoicePickName(choice.pick);
  json["waste_bytes"] = causes.total().count();
  json["tail_bytes"] = causes.tail.count();
  json["alignment_bytes"] = causes.alignment.count();
  json["rounding_bytes"] = causes.rounding.count();
  json["chunks"] = JsonValue::Array();
  for (const ChunkWaste& one : waste.chunks) {
    const ChunkInfo& chunk = layout.chunk(one.chunk);
    const GroupInfo& group = layout.groups()[static_cast<size_t>(chunk.group)];
    JsonValue row;
    row["dtype"] = DTypeName(group.dtype);
    row["trainable"] = group.trainable;
    row["chunk_elements"] = chunk.size.count();
    row["oversize"] = chunk.oversize;
    row["waste_elements"] = one.total().count();
    row["tail_elements"] = one.tail.count();
    row["alignment_elements"] = one.alignment.count();
    row["rounding_elements"] = one.rounding.count();
    row["parameters"] = JsonValue::Array();
    for (const ParamId id : chunk.params) {
      row["parameters"].Append(report.model.params[id.index()].name);
    }
    json["chunks"].Append(std::move(row));
  }
  return json;
}

}  // namespace castor
