// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/zoo_report.h"

#include <fmt/format.h>

#include <ostream>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/search_mode.h"
#include "tools/cli/json_out.h"
#include "tools/cli/size_text.h"

namespace castor {
namespace {

constexpr DType kDType = DType::kBF16;  // of every model

std::string RowName(const ZooRow& row) {
  if (row.experts != ExpertLayout::kFused) return row.name;
  return row.name + ", fused";
}

// "6.74B"
std::string Billions(Elements parameters) {
  const double billions = static_cast<double>(parameters.count()) / 1e9;
  return fmt::format("{:.{}f}B", billions, billions < 10 ? 2 : 1);
}

std::string Percent(double fraction) {
  if (fraction > 0 && fraction < 0.00005) return "<0.01%";
  return fmt::format("{:.2f}%", 100 * fraction);
}

// A size in MiB and a waste, in the 13 columns of one way to choose.
std::string Choice(Elements chunk_size, double waste_fraction) {
  const double mib = static_cast<double>(BytesOf(chunk_size, kDType).count()) /
                     static_cast<double>(MiB(1).count());
  return fmt::format("{:>5.{}f} {:>7}", mib, mib < 10 ? 1 : 0,
                     Percent(waste_fraction));
}

const ModeResult* FindMode(const ZooRow& row, SearchMode mode) {
  for (const ModeResult& result : row.modes) {
    if (result.mode == mode) return &result;
  }
  return nullptr;
}

bool AboveGoal(const ZooRow& row) {
  return row.best.waste_fraction > kZooWasteGoal;
}

JsonValue CandidateJson(const ChunkSizeCandidate& candidate) {
  JsonValue json;
  json["mode"] = SearchModeName(candidate.mode);
  json["chunk_elements"] = candidate.chunk_size.count();
  json["chunk_bytes"] = candidate.chunk_bytes.count();
  json["chunks"] = candidate.chunks;
  json["oversize_chunks"] = candidate.oversize_chunks;
  json["allocated_elements"] = candidate.allocated.count();
  json["waste_elements"] = candidate.waste.count();
  json["waste_fraction"] = candidate.waste_fraction;
  return json;
}

JsonValue RowJson(const ZooRow& row) {
  JsonValue json;
  json["model"] = row.name;
  json["source"] = row.source;
  json["expert_layout"] = nullptr;
  if (row.experts) {
    json["expert_layout"] =
        *row.experts == ExpertLayout::kFused ? "fused" : "per-expert";
  }
  json["parameters"] = row.parameters.count();
  json["tensors"] = row.tensors;
  JsonValue modes = JsonValue::Array();
  for (const ModeResult& mode : row.modes) {
    JsonValue one = CandidateJson(mode.best);
    one["lower_bound_waste_elements"] = mode.lower_bound_waste.count();
    one["optimal"] = mode.optimal;
    modes.Append(std::move(one));
  }
  json["modes"] = std::move(modes);
  json["best"] = CandidateJson(row.best);
  JsonValue gemini;
  gemini["chunk_elements"] = row.gemini.chunk_size->count();
  gemini["chunks"] = row.gemini.packing.chunks.size();
  gemini["claimed_waste_fraction"] = row.gemini.claimed_fraction;
  gemini["waste_elements"] = row.gemini.packing.waste().count();
  gemini["waste_fraction"] = row.gemini.packing.waste_fraction();
  json["gemini"] = std::move(gemini);
  return json;
}

}  // namespace

std::string ZooText(std::span<const ZooRow> rows,
                    const SearchOptions& options) {
  std::string text = fmt::format("  {:<24} {:>7} {:>7}", "", "", "");
  std::string units =
      fmt::format("  {:<24} {:>7} {:>7}", "model", "params", "tensors");
  const auto add_column = [&](std::string_view title) {
    text += fmt::format(" {:>13}", title);
    units += fmt::format(" {:>5} {:>7}", "MiB", "waste");
  };
  for (const SearchMode mode : options.modes) add_column(SearchModeName(mode));
  add_column("Gemini");
  text += '\n' + units + '\n';
  bool any_above = false;
  for (const ZooRow& row : rows) {
    any_above = any_above || AboveGoal(row);
    text += fmt::format("{} {:<24} {:>7} {:>7}", AboveGoal(row) ? '!' : ' ',
                        RowName(row), Billions(row.parameters), row.tensors);
    for (const SearchMode mode : options.modes) {
      const ModeResult* const found = FindMode(row, mode);
      text += ' ';
      text += found == nullptr
                  ? fmt::format("{:>13}", "-")
                  : Choice(found->best.chunk_size, found->best.waste_fraction);
    }
    text +=
        ' ' +
        Choice(*row.gemini.chunk_size, row.gemini.packing.waste_fraction()) +
        '\n';
  }
  text += fmt::format(
      "\nChunks of BF16 for {} rank{}; waste is of what is allocated. "
      "Gemini is ColossalAI's rule, "
      "its waste by its own packer.\n",
      options.pack.world, options.pack.world == 1 ? "" : "s");
  if (any_above) {
    text += fmt::format(
        "! no mode wastes {:.1f} % or less with chunks of up to {}; --json has "
        "the bounds.\n",
        100 * kZooWasteGoal, FormatSize(options.max_chunk));
  }
  return text;
}

std::string ZooPlain(std::span<const ZooRow> rows) {
  std::string text =
      "#model\texpert_layout\tparameters\ttensors\trule\tchunk_elements\t"
      "chunks\twaste_elements\twaste_fraction\n";
  const auto add = [&text](const ZooRow& row, std::string_view rule,
                           Elements chunk_size, int64_t chunks, Elements waste,
                           double fraction) {
    const std::string_view experts = !row.experts ? "-"
                                     : *row.experts == ExpertLayout::kFused
                                         ? "fused"
                                         : "per-expert";
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{:.6f}\n", row.name,
                        experts, row.parameters.count(), row.tensors, rule,
                        chunk_size.count(), chunks, waste.count(), fraction);
  };
  for (const ZooRow& row : rows) {
    for (const ModeResult& mode : row.modes) {
      add(row, SearchModeName(mode.mode), mode.best.chunk_size,
          mode.best.chunks, mode.best.waste, mode.best.waste_fraction);
    }
    const RulePacking& packing = row.gemini.packing;
    add(row, "gemini", *row.gemini.chunk_size,
        static_cast<int64_t>(packing.chunks.size()), packing.waste(),
        packing.waste_fraction());
  }
  return text;
}

JsonValue ZooJson(std::span<const ZooRow> rows, const SearchOptions& options) {
  JsonValue json;
  json["schema"] = "castor.search.zoo/1";
  json["dtype"] = DTypeName(kDType);
  json["world"] = options.pack.world;
  json["min_chunk_bytes"] = options.min_chunk.count();
  json["max_chunk_bytes"] = options.max_chunk.count();
  json["models"] = JsonValue::Array();
  for (const ZooRow& row : rows) json["models"].Append(RowJson(row));
  return json;
}

Status RunZoo(const Console& console, ZooForm form,
              const SearchOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<ZooRow> rows, SearchZoo(options));
  switch (form) {
    case ZooForm::kPage:
      console.out << ZooText(rows, options);
      break;
    case ZooForm::kPlain:
      console.out << ZooPlain(rows);
      break;
    case ZooForm::kJson:
      WriteJson(ZooJson(rows, options), console.out);
      break;
  }
  return OkStatus();
}

}  // namespace castor
