// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/search/search_result.h"
#include "chunk/text/units_text.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/search/search_document.h"

namespace castor {
namespace {

constexpr DType kDType = DType::kBF16;  // of every model

JsonValue CandidateJson(const ChunkSizeCandidate& candidate) {
  return Fields({{"mode", SearchModeName(candidate.mode)},
                 {"chunk_elements", candidate.chunk_size},
                 {"chunk_bytes", candidate.chunk_bytes},
                 {"chunks", candidate.chunks},
                 {"oversize_chunks", candidate.oversize_chunks},
                 {"allocated_elements", candidate.allocated},
                 {"waste_elements", candidate.waste},
                 {"waste_fraction", candidate.waste_fraction}});
}

Value ExpertsValue(const ZooRow& row) {
  return row.experts ? Value(ExpertLayoutName(*row.experts)) : Value();
}

JsonValue RowJson(const ZooRow& row) {
  const RulePacking& gemini = row.gemini.packing;
  return Fields(
      {{"model", row.name},
       {"source", row.source},
       {"expert_layout", ExpertsValue(row)},
       {"parameters", row.parameters},
       {"tensors", row.tensors},
       {"min_chunk_bytes", row.search.min_chunk},
       {"max_chunk_bytes", row.search.max_chunk},
       {"modes", ListOf(row.modes,
                        [](const ModeResult& mode) {
                          JsonValue json = CandidateJson(mode.best);
                          json["lower_bound_waste_elements"] =
                              mode.lower_bound_waste.count();
                          json["optimal"] = mode.optimal;
                          return json;
                        })},
       {"best", CandidateJson(row.best)},
       {"gemini",
        Fields({{"chunk_elements", row.gemini.chunk_size},
                {"chunks", gemini.chunks.size()},
                {"claimed_waste_fraction", row.gemini.claimed_fraction},
                {"waste_elements", gemini.waste()},
                {"waste_fraction", gemini.waste_fraction()}})}});
}

Table PlainLines(std::span<const ZooRow> rows) {
  Table table({.header = true}, {{"model"},
                                 {"expert_layout"},
                                 {"parameters"},
                                 {"tensors"},
                                 {"rule"},
                                 {"chunk_elements"},
                                 {"chunks"},
                                 {"waste_elements"},
                                 {"waste_fraction"}});
  for (const ZooRow& row : rows) {
    for (const ModeResult& mode : row.modes) {
      const ChunkSizeCandidate& best = mode.best;
      table.Add({row.name, ExpertsValue(row), row.parameters, row.tensors,
                 SearchModeName(mode.mode), best.chunk_size, best.chunks,
                 best.waste, best.waste_fraction});
    }
    const RulePacking& gemini = row.gemini.packing;
    table.Add({row.name, ExpertsValue(row), row.parameters, row.tensors,
               "gemini", row.gemini.chunk_size, gemini.chunks.size(),
               gemini.waste(), gemini.waste_fraction()});
  }
  return table;
}

bool AboveGoal(const ZooRow& row) {
  return row.best.waste_fraction > kZooWasteGoal;
}

Table PageRows(std::span<const ZooRow> rows, const SearchOptions& search) {
  std::vector<Table::Column> columns = {
      {"", "model"}, {"", "params"}, {"", "tensors"}};
  for (const SearchMode mode : search.modes) {
    columns.push_back({"", std::string(SearchModeName(mode))});
    columns.push_back({"", "%"});
  }
  columns.push_back({"", "Gemini"});
  columns.push_back({"", "%"});
  Table table({}, std::move(columns));
  for (const ZooRow& row : rows) {
    const double billions = static_cast<double>(row.parameters.count()) / 1e9;
    std::vector<Value> cells = {
        row.name + (row.experts == ExpertLayout::kFused ? ", fused" : ""),
        Value(billions).As(fmt::format("{:.2f}B", billions)), row.tensors};
    const auto add = [&cells](Elements size, double waste_fraction) {
      const double mib = static_cast<double>(BytesOf(size, kDType).count()) /
                         static_cast<double>(MiB(1).count());
      cells.push_back(
          Value(mib).As(fmt::format("{:.{}f}", mib, mib < 10 ? 1 : 0)));
      cells.push_back(ShareCell(waste_fraction));
    };
    for (const SearchMode asked : search.modes) {
      const auto mode = std::find_if(
          row.modes.begin(), row.modes.end(),
          [asked](const ModeResult& one) { return one.mode == asked; });
      if (mode == row.modes.end()) {
        cells.insert(cells.end(), 2, Value());
      } else {
        add(mode->best.chunk_size, mode->best.waste_fraction);
      }
    }
    add(row.gemini.chunk_size, row.gemini.packing.waste_fraction());
    table.Add(std::move(cells),
              AboveGoal(row) ? Table::Mark::kChosen : Table::Mark::kNone);
  }
  return table;
}

}  // namespace

Document ZooDocument(std::span<const ZooRow> rows,
                     const SearchQuestion& question) {
  const SearchOptions& search = question.search;
  Document doc("castor.search.zoo/1");
  doc.Set("dtype", DTypeName(kDType));
  doc.Set("world", search.pack.world);
  doc.Set("models", ListOf(rows, RowJson));
  doc.Add(PlainLines(rows), Form::kPlain);
  doc.Add(PageRows(rows, search), Form::kPage);
  doc.Say("", fmt::format("Chunks of BF16 for {}, in MiB, and the share of "
                          "what is allocated that is wasted. Gemini is "
                          "ColossalAI's rule, its waste by its own packer.",
                          Plural(search.pack.world, "rank")));
  if (std::any_of(rows.begin(), rows.end(), AboveGoal)) {
    doc.Say("",
            fmt::format("> no mode wastes {:.1f} % or less with chunks of up "
                        "to the largest searched; --json has the bounds.",
                        100 * kZooWasteGoal));
  }
  return doc;
}

}  // namespace castor
