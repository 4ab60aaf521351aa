// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_size_search.h"
#include "chunk/layout/size_family.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "chunk/text/units_text.h"
#include "placement/tier_model.h"
#include "tools/cli/atomic_file.h"
#include "tools/cli/output_paths.h"
#include "tools/cli/progress.h"
#include "tools/models/families/expert_layout.h"
#include "tools/models/files/castor_files.h"
#include "tools/models/model_list.h"
#include "tools/models/model_reader.h"

namespace castor {
namespace {

// What was declared goes before what the file says.
Result<std::optional<TierModel>> ReadMachine(const SearchRequest& request) {
  TierModel machine;
  if (!request.machine_file.empty()) {
    CASTOR_ASSIGN_OR_RETURN(machine, ReadMachineFile(request.machine_file));
  }
  const TierModel& declared = request.search.declared;
  const auto prefer = [](const auto& ours, auto* theirs) {
    if (ours) *theirs = ours;
  };
  prefer(declared.host_to_device, &machine.host_to_device);
  prefer(declared.device_to_host, &machine.device_to_host);
  prefer(declared.all_gather, &machine.all_gather);
  prefer(declared.reduce_scatter, &machine.reduce_scatter);
  if (request.machine_file.empty() && machine == TierModel{}) {
    return std::optional<TierModel>();
  }
  return std::optional<TierModel>(machine);
}

ExpertLayout TheOther(ExpertLayout layout) {
  return layout == ExpertLayout::kFused ? ExpertLayout::kPerExpert
                                        : ExpertLayout::kFused;
}

// The model with its experts held in the other way.
Result<ModelList> ReadOtherLayout(const SearchReport& report) {
  const SearchRequest& request = report.request;
  const ExpertLayout other = TheOther(*report.experts);
  if (request.model != "-" && report.model.library.empty()) {
    ReadModelOptions read = request.read;
    read.expert_layout = other;
    return ReadModel(request.model, read);
  }
  // The standard input is read once, and a library, which takes seconds, asked
  // once. Such lists are in one of three orders, and all but one are kept where
  // experts are rewritten.
  ModelList model = report.model;
  CASTOR_RETURN_IF_ERROR(ApplyExpertLayout(other, model.params));
  if (model.order == ParamOrder::kNatural) {
    std::sort(model.params.begin(), model.params.end(),
              [](const ParamSpec& a, const ParamSpec& b) {
                return a.name == b.name ? a.shape < b.shape
                                        : NaturalLess(a.name, b.name);
              });
  }
  return model;
}

// The search itself, of `report->model`.
Status Search(SearchReport* report) {
  report->search = SearchOf(report->request.search, report->model.params);
  CASTOR_ASSIGN_OR_RETURN(
      report->result, SearchChunkSize(report->model.params, report->search));
  CASTOR_ASSIGN_OR_RETURN(
      report->rule,
      ApplyRule(report->model.params, report->search, report->result));
  return OkStatus();
}

// Both ways of holding experts are searched unless one is asked for, or a trace
// knows one only; and a layout file is for one.
Status SearchOtherLayout(SearchReport* report) {
  const ReadModelOptions& read = report->request.read;
  if (!report->experts || read.expert_layout ||
      read.order == ParamOrder::kTrace) {
    return OkStatus();
  }
  SearchReport other;
  other.request = report->request;
  other.machine = report->machine;
  other.experts = TheOther(*report->experts);
  CASTOR_ASSIGN_OR_RETURN(other.model, ReadOtherLayout(*report));
  CASTOR_RETURN_IF_ERROR(Search(&other));
  report->other_layouts.push_back(std::move(other));
  return OkStatus();
}

Status CheckExperts(const SearchReport& report) {
  const SearchRequest& request = report.request;
  if (request.output.empty() || !report.experts || request.read.expert_layout) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "a layout file is for one way of holding experts, and the model has "
      "some; say which with --expert-layout fused or --expert-layout "
      "per-expert (as they are in the model: {})",
      ExpertLayoutName(*report.experts)));
}

Status Choose(SearchReport* report, std::vector<std::string>* notes) {
  const SearchRequest& request = report->request;
  if (request.output.empty() && !request.explain && !request.chunk) {
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(report->choice, MakeChoice(*report, notes));
  if (request.output.empty()) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(
      const std::string text,
      WriteLayout(report->model.params, report->choice->layout));
  return WriteFileAtomically(request.output, text);
}

}  // namespace

Result<SearchReport> RunSearch(const SearchRequest& request,
                               const Console& console) {
  CASTOR_RETURN_IF_ERROR(
      CheckOutputs(std::array{NamedPath{"MODEL", request.model},
                              NamedPath{"--trace", request.read.trace_file},
                              NamedPath{"--machine", request.machine_file}},
                   std::array{NamedPath{"-o", request.output}}));
  Progress progress(console);
  progress.Phase("reading the model");
  SearchReport report;
  report.request = request;
  CASTOR_ASSIGN_OR_RETURN(report.machine, ReadMachine(request));
  CASTOR_ASSIGN_OR_RETURN(report.model, ReadModel(request.model, request.read));
  report.experts = FindExpertLayout(report.model.params);
  CASTOR_RETURN_IF_ERROR(CheckExperts(report));
  std::vector<std::string> notes = report.model.notes;
  progress.Phase("searching");
  CASTOR_RETURN_IF_ERROR(Search(&report));
  CASTOR_RETURN_IF_ERROR(SearchOtherLayout(&report));
  CASTOR_RETURN_IF_ERROR(Choose(&report, &notes));
  progress.Finish();
  for (const std::string& note : notes) console.Note(note);
  return report;
}

Result<SearchChoice> MakeChoice(const SearchReport& report,
                                std::vector<std::string>* notes) {
  const ChoicePick pick = report.request.pick;
  const std::optional<Bytes> chunk = report.request.chunk;
  const SearchOptions& search = report.search;
  CASTOR_CHECK(chunk.has_value() == (pick == ChoicePick::kChunk));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<SizeFamily> families,
                          SizeFamilies(report.model.params, search.pack));
  CASTOR_CHECK_EQ(families.size(), report.result.groups.size());
  std::vector<ChunkSizeCandidate> chosen;
  std::vector<Elements> chunk_sizes;
  for (size_t f = 0; f < families.size(); ++f) {
    const GroupSearchResult& found = report.result.groups[f];
    if (pick != ChoicePick::kChunk) {
      chosen.push_back(pick == ChoicePick::kBest ? found.best
                                                 : found.recommended);
    } else {
      const Elements quantum = families[f].quantum;
      const Elements size =
          std::max(quantum * CeilDiv(*chunk, BytesOf(quantum, found.dtype)),
                   families[f].least);
      CASTOR_ASSIGN_OR_RETURN(ChunkSizeCandidate candidate,
                              CostOfChunkSize(families[f], size, search.pack,
                                              search.gathered_slots));
      candidate.reason = "as given";
      if (candidate.chunk_bytes != *chunk) {
        notes->push_back(fmt::format(
            "--chunk {} is no multiple of {} elements from {} on; chunks of {} "
            "are {}",
            FormatSizeExact(*chunk), quantum.count(), families[f].least.count(),
            GroupName(found), FormatSizeExact(candidate.chunk_bytes)));
      }
      chosen.push_back(std::move(candidate));
    }
    chunk_sizes.push_back(chosen.back().chunk_size);
  }
  CASTOR_ASSIGN_OR_RETURN(
      ChunkLayout layout,
      PackChunks(report.model.params, SizesOfGroups(families, chunk_sizes),
                 search.pack));
  return SearchChoice{std::move(chosen), std::move(layout)};
}

bool SameChoice(const ChunkSizeCandidate& a, const ChunkSizeCandidate& b) {
  return a.mode == b.mode && a.chunk_size == b.chunk_size;
}

}  // namespace castor
