// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/quote.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_packer.h"
#include "chunk/search_mode.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/search/search_explain.h"
#include "tools/commands/search/search_proof.h"
#include "tools/commands/search/search_rules.h"
#include "tools/commands/search/search_table.h"
#include "tools/commands/search/search_transfer.h"

namespace castor {
namespace {

// More rows than this do not help to choose.
constexpr size_t kMostRows = 10;
constexpr size_t kLeastRows = 2;  // the best and the recommended one
constexpr size_t kWorstChunks = 5;

std::string_view OrderMeaning(ParamOrder order) {
  switch (order) {
    case ParamOrder::kFamily:
      return "as the reference code registers them";
    case ParamOrder::kFile:
      return "as the file has them";
    case ParamOrder::kNatural:
      return "by name, numbers as numbers";
    case ParamOrder::kTrace:
      return "as the step of --trace first used them, by your choice";
  }
  return "";
}

// One line for each reason, with an example.
std::string DroppedLines(const ModelList& model) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const DroppedTensor& tensor : model.dropped) {
    auto found = std::find_if(
        by_reason.begin(), by_reason.end(),
        [&](const auto& entry) { return entry.first == tensor.reason; });
    if (found == by_reason.end()) {
      by_reason.push_back({tensor.reason, {}});
      found = by_reason.end() - 1;
    }
    found->second.push_back(tensor.name);
  }
  std::string text;
  for (const auto& [reason, names] : by_reason) {
    text += Paragraph(
        "Left out",
        fmt::format("{} ({}): {}{}",
                    Plural(static_cast<int64_t>(names.size()), "tensor"),
                    reason, Quoted(names.front()),
                    names.size() > 1 ? ", ..." : ""));
  }
  return text;
}

std::string ModelLines(const SearchReport& report) {
  const ModelList& model = report.model;
  const ModelTotals totals = TotalsOf(model);
  const auto& groups = report.result.groups;
  const PackOptions& pack = report.options.pack;
  return Paragraph(
             "Model",
             fmt::format(
                 "{}: {}{}, {}, {}{}", Shown(model.name),
                 model.family.empty() ? "" : model.family + ", ",
                 Plural(static_cast<int64_t>(model.params.size()), "tensor"),
                 Plural(totals.elements, "parameter"), FormatSize(totals.bytes),
                 groups.size() == 1
                     ? fmt::format(" of {}", DTypeName(groups.front().dtype))
                     : "")) +
         Paragraph("Read from",
                   fmt::format("{} (no weights read)", Shown(model.source))) +
         Paragraph("Order", fmt::format("{}: parameters are packed {}",
                                        ParamOrderName(model.order),
                                        OrderMeaning(model.order))) +
         DroppedLines(model) +
         Paragraph(
             "Chunks",
             fmt::format(
                 "{} to {}, multiples of {} elements ({}), aligned to {}, "
                 "{} gathered",
                 FormatSize(report.options.min_chunk),
                 FormatSize(report.options.max_chunk),
                 Grouped(ChunkQuantum(pack.world).count()),
                 Plural(pack.world, "rank"), Grouped(pack.align.count()),
                 Grouped(report.options.gathered_slots)));
}

// "uniform, 416MiB (218,103,808 elements of BF16), 34 chunks"
std::string ChoiceText(const ChunkSizeCandidate& chosen, DType dtype) {
  return fmt::format(
      "{}, {} ({} elements of {}), {}", SearchModeName(chosen.mode),
      FormatSizeExact(chosen.chunk_bytes), Grouped(chosen.chunk_size.count()),
      DTypeName(dtype), Plural(chosen.chunks, "chunk"));
}

std::string OversizeText(const ChunkSizeCandidate& chosen) {
  if (chosen.oversize_chunks == 0) return {};
  const double share = static_cast<double>(chosen.oversize_allocated.count()) /
                       static_cast<double>(chosen.allocated.count());
  return fmt::format(
      "; {} larger than that {} of its own, {} of the bytes",
      Plural(chosen.oversize_chunks, "parameter"),
      chosen.oversize_chunks == 1 ? "has a chunk" : "have each a chunk",
      Percent(share));
}

// What is said of one group around its table.
struct Section {
  const SearchReport* report;
  size_t group;
  std::string before;
  std::string after;
};

std::string_view ExpertsText(ExpertLayout layout) {
  return layout == ExpertLayout::kFused ? "a tensor for all of a layer"
                                        : "a tensor for each";
}

// Adds a section for each group of `report`, with `title` before the first.
void AddSections(const SearchReport& report, const std::string& title,
                 bool brief, std::vector<Section>* sections) {
  const auto& groups = report.result.groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupSearchResult& group = groups[g];
    Section section{&report, g, "\n" + (g == 0 ? title : std::string()), {}};
    if (groups.size() > 1) {
      section.before += Paragraph(
          "Group",
          fmt::format("{}: {}, {}", GroupName(group),
                      Plural(group.params, "tensor"),
                      FormatSize(BytesToHold(group.payload, group.dtype))));
    }
    section.after =
        Paragraph("Recommended", ChoiceText(group.recommended, group.dtype) +
                                     OversizeText(group.recommended)) +
        (brief ? ProofSummary(group)
               : ProofParagraphs(group, report.options.pack));
    sections->push_back(std::move(section));
  }
}

std::vector<Section> SectionsOf(const SearchReport& report) {
  std::vector<Section> sections;
  if (report.other_layouts.empty()) {
    AddSections(report, "", report.result.groups.size() > 1, &sections);
    return sections;
  }
  AddSections(
      report,
      Paragraph("Experts", fmt::format("{} ({}), as in the model",
                                       ExpertLayoutName(*report.experts),
                                       ExpertsText(*report.experts))),
      /*brief=*/true, &sections);
  for (const SearchReport& other : report.other_layouts) {
    AddSections(
        other,
        Paragraph("Experts",
                  fmt::format("{} ({})", ExpertLayoutName(*other.experts),
                              ExpertsText(*other.experts))),
        /*brief=*/true, &sections);
  }
  return sections;
}

std::string TotalLine(const SearchResult& result) {
  const ChoiceTotals totals = TotalsOf(result, &GroupSearchResult::recommended);
  return Paragraph(
      "All groups",
      fmt::format("{} as recommended, {} wasted, {} gathered",
                  Plural(totals.chunks, "chunk"), FormatSize(totals.waste),
                  FormatSize(totals.gathered)));
}

std::string NextLine(const SearchReport& report) {
  std::string next =
      fmt::format("castor search {}", ShellWord(report.model_argument));
  if (!report.output.empty()) {
    next += " --explain   where the waste is";
  } else if (!report.options.device_budget) {
    next += " --device-budget 8GiB   what fits a device";
  } else {
    next += fmt::format("{} -o layout.json   where every parameter lies",
                        report.other_layouts.empty()
                            ? std::string()
                            : fmt::format(" --expert-layout {}",
                                          ExpertLayoutName(*report.experts)));
  }
  return fmt::format("{:<12}{}\n", "Next", next);
}

// What holds for all groups.
std::string Closing(const SearchReport& report) {
  std::string text;
  if (report.result.groups.size() > 1) {
    text += "\n" + TotalLine(report.result);
  }
  text += Paragraph("Rule", report.result.recommended_rule);
  if (report.machine) {
    text += Paragraph("Machine",
                      MachineText(*report.machine, report.options.pack.world));
  }
  if (report.rules_asked_for) text += RulesText(report);
  if (!report.output.empty()) {
    text += Paragraph("Written",
                      fmt::format("{}: the layout of {}", Shown(report.output),
                                  report.choice->pick == ChoicePick::kChunk
                                      ? "--chunk"
                                      : ChoicePickName(report.choice->pick)));
  }
  return text + NextLine(report);
}

size_t LinesIn(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

std::string SearchText(const SearchReport& report, Emphasis emphasis) {
  std::string text = ModelLines(report);
  const auto& groups = report.result.groups;
  if (groups.empty()) {
    return text +
           "\nThe model has no parameters, so there is nothing to pack.\n";
  }
  const std::vector<Section> sections = SectionsOf(report);
  std::string after;
  if (report.explain) after = ExplainText(report, *report.choice, kWorstChunks);
  after += Closing(report);

  size_t fixed = LinesIn(text) + LinesIn(after);
  for (const Section& section : sections) {
    // The table's titles, the line that counts what it leaves out, the empty
    // line below, and what is compared with.
    fixed += LinesIn(section.before) + LinesIn(section.after) + 3 +
             report.rules.size();
  }
  const size_t room =
      (kPageLines - std::min(kPageLines, fixed)) / sections.size();
  for (const Section& section : sections) {
    text += section.before +
            CandidateTable(*section.report, section.group,
                           std::clamp(room, kLeastRows, kMostRows), emphasis) +
            "\n" + section.after;
  }
  return text + after;
}

}  // namespace castor
