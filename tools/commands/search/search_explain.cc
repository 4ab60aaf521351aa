// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "chunk/chunk_layout.h"
#include "chunk/waste_breakdown.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/search/search_parts.h"

namespace castor {
namespace {

constexpr size_t kWorstChunks = 5;

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

class ChunkTable {
 public:
  explicit ChunkTable(const SearchReport& report)
      : names_(report.model.params), layout_(report.choice->layout) {}

  void Add(const ChunkWaste& one, Form form) {
    const ChunkInfo& chunk = layout_.chunk(one.chunk);
    const GroupInfo& group = layout_.groups()[static_cast<size_t>(chunk.group)];
    const auto bytes = [&](Elements part) {
      return BytesToHold(part, group.dtype);
    };
    const size_t more = chunk.params.size() - 1;
    table_.Add(
        {one.chunk.index(), bytes(chunk.size), bytes(one.total()),
         bytes(one.tail + one.rounding), bytes(one.alignment),
         Shortened(names_[chunk.params.front().index()].name) +
             (more > 0 ? fmt::format(", +{}", more) : ""),
         DTypeName(group.dtype), group.trainable, chunk.size, chunk.oversize,
         one.total(), one.tail, one.alignment, one.rounding,
         ListOf(chunk.params,
                [&](ParamId id) { return names_[id.index()].name; })},
        Table::Mark::kNone, form);
  }

  Table Take() && { return std::move(table_); }

 private:
  const std::vector<ParamSpec>& names_;
  const ChunkLayout& layout_;
  Table table_{{.key = "chunks"},
               {{"", "chunk"},
                {"", "size"},
                {"", "wasted"},
                {"", "tail"},
                {"", "alignment"},
                {"", "parameters"},
                {"dtype"},
                {"trainable"},
                {"chunk_elements"},
                {"oversize"},
                {"waste_elements"},
                {"tail_elements"},
                {"alignment_elements"},
                {"rounding_elements"},
                {"parameters"}}};
};

// The chunks that waste most, ties in their order.
std::vector<ChunkWaste> Worst(const WasteBreakdown& waste,
                              const ChunkLayout& layout) {
  std::vector<ChunkWaste> chunks;
  for (const ChunkWaste& chunk : waste.chunks) {
    if (chunk.total() > Elements(0)) chunks.push_back(chunk);
  }
  const auto key = [&layout](const ChunkWaste& chunk) {
    return std::pair(
        Bytes(0) - BytesToHold(chunk.total(), layout.dtype(chunk.chunk)),
        chunk.chunk);
  };
  std::sort(chunks.begin(), chunks.end(),
            [&key](const ChunkWaste& a, const ChunkWaste& b) {
              return key(a) < key(b);
            });
  if (chunks.size() > kWorstChunks) chunks.resize(kWorstChunks);
  return chunks;
}

}  // namespace

Document ExplainDocument(const SearchReport& report) {
  const ChunkLayout& layout = report.choice->layout;
  const ChoicePick pick = report.choice->pick;
  const WasteBreakdown waste = BreakDownWaste(layout);
  Bytes tail;
  Bytes alignment;
  Bytes rounding;
  for (size_t g = 0; g < waste.groups.size(); ++g) {
    const DType dtype = layout.groups()[g].dtype;
    tail += BytesToHold(waste.groups[g].tail, dtype);
    alignment += BytesToHold(waste.groups[g].alignment, dtype);
    rounding += BytesToHold(waste.groups[g].rounding, dtype);
  }
  const Bytes total = tail + alignment + rounding;
  const auto part = [total](std::string_view cause, Bytes bytes) {
    const Value share = Value::Share(bytes.count(), total.count());
    return fmt::format("{} {}{}", cause, FormatSize(bytes),
                       total == Bytes(0) ? "" : " (" + share.Page() + ")");
  };
  Document doc;
  doc.Set("pick", ChoicePickName(pick));
  doc.Set("waste_bytes", total);
  doc.Set("tail_bytes", tail);
  doc.Set("alignment_bytes", alignment);
  doc.Set("rounding_bytes", rounding);
  doc.Gap();
  doc.Say("Waste", fmt::format("of {}: {} = {} + {} + {}", ChoicePickText(pick),
                               FormatSize(total), part("tails", tail),
                               part("alignment", alignment),
                               part("oversize rounding", rounding)));
  ChunkTable table(report);
  for (const ChunkWaste& one : waste.chunks) table.Add(one, Form::kJson);
  for (const ChunkWaste& one : Worst(waste, layout)) {
    table.Add(one, Form::kPage);
  }
  doc.Add(std::move(table).Take());
  return doc;
}

}  // namespace castor
