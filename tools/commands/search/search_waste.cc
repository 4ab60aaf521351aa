// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <variant>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/waste_breakdown.h"
#include "chunk/rules/gemini_rule.h"
#include "chunk/search/layer_certificate.h"
#include "chunk/search/search_certificate.h"
#include "chunk/text/units_text.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/search/search_document.h"

namespace castor {
namespace {

std::string SizeOf(Elements size, DType dtype) {
  return FormatSize(BytesToHold(size, dtype));
}

std::string ProofText(const GroupSearchResult& group, const ModeResult& mode,
                      const PackOptions& pack) {
  const std::string bound = fmt::format(
      "{} ({} elements)", SizeOf(mode.lower_bound_waste, group.dtype),
      Grouped(mode.lower_bound_waste.count()));
  if (const auto* layers = std::get_if<LayerCertificate>(&mode.certificate)) {
    return fmt::format(
        "{} repeat {} times; of the least sizes that hold one repeat in 1 to 8 "
        "chunks none wastes less than {}",
        Plural(layers->repeat.params, "tensor"),
        Grouped(layers->repeat.repeats), bound);
  }
  const auto& proof = std::get<SearchCertificate>(mode.certificate);
  const std::string least = SizeOf(proof.min_size, group.dtype);
  if (proof.min_size == proof.max_size) {
    return fmt::format("the only allowed size, {}, wastes {}", least, bound);
  }
  const int64_t sizes =
      (proof.max_size - proof.min_size) / ChunkQuantum(pack.world) + 1;
  return fmt::format(
      "none of the {} allowed sizes, {} to {}, wastes less than {}; {} cover "
      "them",
      Grouped(sizes), least, SizeOf(proof.max_size, group.dtype), bound,
      Plural(std::ssize(proof.intervals), "interval"));
}

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

Table ChunkTable() {
  return Table({.key = "chunks"}, {{"", "chunk"},
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
                                   {"parameters"}});
}

std::vector<Value> ChunkRow(const SearchReport& report, const ChunkWaste& one) {
  const std::vector<ParamSpec>& specs = report.model.params;
  const ChunkLayout& layout = report.choice->layout;
  const ChunkInfo& chunk = layout.chunk(one.chunk);
  const GroupInfo& group = layout.groups()[static_cast<size_t>(chunk.group)];
  const auto bytes = [&](Elements part) {
    return BytesToHold(part, group.dtype);
  };
  const auto name = [&](ParamId id) { return specs[id.index()].name; };
  const size_t more = chunk.params.size() - 1;
  return {one.chunk.index(),
          bytes(chunk.size),
          bytes(one.total()),
          bytes(one.tail + one.rounding),
          bytes(one.alignment),
          Shortened(name(chunk.params.front())) +
              (more > 0 ? fmt::format(", +{}", more) : ""),
          DTypeName(group.dtype),
          group.trainable,
          chunk.size,
          chunk.oversize,
          one.total(),
          one.tail,
          one.alignment,
          one.rounding,
          ListOf(chunk.params, name)};
}

// The chunks that waste most, ties in their order.
std::vector<ChunkWaste> Worst(std::vector<ChunkWaste> chunks,
                              const ChunkLayout& layout) {
  std::erase_if(chunks, [](const auto& c) { return c.total() == Elements(0); });
  const auto key = [&layout](const ChunkWaste& chunk) {
    return std::pair(
        Bytes(0) - BytesToHold(chunk.total(), layout.dtype(chunk.chunk)),
        chunk.chunk);
  };
  std::sort(chunks.begin(), chunks.end(),
            [&key](const auto& a, const auto& b) { return key(a) < key(b); });
  if (chunks.size() > kWorstChunks) chunks.resize(kWorstChunks);
  return chunks;
}

// "its rule"'s choice, claim and truth.
std::string Sentences(const RuleResult& rule, const SearchReport& report) {
  std::string text = fmt::format(
      "its rule picks {} elements and claims a waste of {}",
      Grouped(rule.chunk_size.count()), Percent(rule.claimed_fraction));
  if (rule.ignored_params > 0) {
    text += fmt::format(", without {} of {} elements ({})",
                        Plural(rule.ignored_params, "parameter"),
                        Grouped(rule.ignored.count()), rule.ignored_why);
  }
  text += fmt::format("; its own packing wastes {} in {}{}",
                      Percent(rule.packing.waste_fraction()),
                      Plural(std::ssize(rule.packing.chunks), "chunk"),
                      rule.replicated ? ", whole on every rank" : "");
  if (rule.unpacked_params > 0) {
    text +=
        fmt::format(", {} in none", Plural(rule.unpacked_params, "parameter"));
  }
  const SearchTotals best = TotalsOf(report.result);
  return text + fmt::format("; Castor's best {} in {}",
                            Percent(best.waste_fraction()),
                            Plural(best.chunks, "chunk"));
}

}  // namespace

void SayProofs(const GroupSearchResult& group, const PackOptions& pack,
               bool brief, Document* doc) {
  std::vector<std::string> bounds;
  for (const ModeResult& mode : group.modes) {
    bounds.push_back(fmt::format("{} {}", SearchModeName(mode.mode),
                                 SizeOf(mode.lower_bound_waste, group.dtype)));
    if (brief) continue;
    doc->Say("Proved", fmt::format("{}: {}", SearchModeName(mode.mode),
                                   ProofText(group, mode, pack)));
  }
  if (!brief) return;
  doc->Say("Proved", fmt::format("nothing that is allowed wastes less than {}",
                                 JoinedWithAnd(bounds)));
}

Document ExplainDocument(const SearchReport& report) {
  const ChunkLayout& layout = report.choice->layout;
  const ChoicePick pick = report.request.pick;
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
  Table table = ChunkTable();
  for (const ChunkWaste& one : waste.chunks) {
    table.Add(ChunkRow(report, one), Table::Mark::kNone, Form::kJson);
  }
  for (const ChunkWaste& one : Worst(waste.chunks, layout)) {
    table.Add(ChunkRow(report, one), Table::Mark::kNone, Form::kPage);
  }
  doc.Add(std::move(table));
  return doc;
}

void SayRule(const SearchReport& report, Document* doc) {
  if (!report.request.rule_asked_for || !report.rule) return;
  doc->Say("Gemini", Sentences(report.rule->rule, report));
}

}  // namespace castor
