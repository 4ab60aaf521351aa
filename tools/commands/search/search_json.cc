// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_json.h"

#include <string>
#include <utility>
#include <vector>

#include "chunk/chunk_layout.h"
#include "chunk/search_mode.h"
#include "chunk/search_result.h"
#include "tools/commands/search/certificate_json.h"
#include "tools/commands/search/search_explain.h"
#include "tools/commands/search/search_rules.h"
#include "tools/commands/search/search_transfer.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

// Candidates of one report, with what depends on the whole of it.
class CandidateWriter {
 public:
  explicit CandidateWriter(const SearchReport& report) : report_(report) {}

  JsonValue operator()(const ChunkSizeCandidate& candidate,
                       size_t group) const {
    JsonValue json;
    json["mode"] = SearchModeName(candidate.mode);
    const GroupSearchResult& found = report_.result.groups[group];
    if (report_.result.groups.size() > 1) json["group"] = GroupName(found);
    json["chunk_elements"] = candidate.chunk_size.count();
    json["chunk_bytes"] = candidate.chunk_bytes.count();
    json["chunks"] = candidate.chunks;
    json["oversize_chunks"] = candidate.oversize_chunks;
    json["allocated_elements"] = candidate.allocated.count();
    json["waste_elements"] = candidate.waste.count();
    json["waste_bytes"] = candidate.waste_bytes.count();
    json["waste_fraction"] = candidate.waste_fraction;
    json["gathered_bytes"] = candidate.gathered_bytes.count();
    if (report_.machine) {
      json["transfer"] = TransferJson(TransferCost(
          *report_.machine, found, candidate, report_.options.pack.world));
    }
    json["reason"] = candidate.reason;
    return json;
  }

  // One for each group: by itself where there is one group, else a list.
  JsonValue operator()(const std::vector<ChunkSizeCandidate>& of_groups) const {
    JsonValue list = JsonValue::Array();
    for (size_t g = 0; g < of_groups.size(); ++g) {
      list.Append((*this)(of_groups[g], g));
    }
    return of_groups.size() == 1 ? list[0] : list;
  }

  JsonValue operator()(ChunkSizeCandidate GroupSearchResult::*choice) const {
    std::vector<ChunkSizeCandidate> chosen;
    for (const GroupSearchResult& group : report_.result.groups) {
      chosen.push_back(group.*choice);
    }
    return (*this)(chosen);
  }

 private:
  const SearchReport& report_;
};

JsonValue ModelJson(const ModelList& model) {
  const ModelTotals totals = TotalsOf(model);
  JsonValue json;
  json["parameters"] = totals.elements;
  json["tensors"] = model.params.size();
  json["elements"] = totals.elements;
  json["total_bytes"] = totals.bytes.count();
  json["name"] = model.name;
  json["family"] = model.family.empty() ? JsonValue() : JsonValue(model.family);
  json["source"] = model.source;
  json["order"] = ParamOrderName(model.order);
  json["dropped"] = JsonValue::Array();
  for (const DroppedTensor& tensor : model.dropped) {
    json["dropped"].Append(
        JsonValue::Object({{"name", tensor.name}, {"reason", tensor.reason}}));
  }
  return json;
}

// What was asked for, so that the numbers can be checked without the command
// line.
JsonValue OptionsJson(const SearchOptions& options) {
  JsonValue json;
  json["min_chunk_bytes"] = options.min_chunk.count();
  json["max_chunk_bytes"] = options.max_chunk.count();
  json["world"] = options.pack.world;
  json["gathered_slots"] = options.gathered_slots;
  json["device_budget_bytes"] = options.device_budget
                                    ? JsonValue(options.device_budget->count())
                                    : JsonValue();
  json["modes"] = JsonValue::Array();
  for (const SearchMode mode : options.modes) {
    json["modes"].Append(SearchModeName(mode));
  }
  return json;
}

JsonValue TotalsJson(const SearchResult& result,
                     ChunkSizeCandidate GroupSearchResult::*choice) {
  const ChoiceTotals totals = TotalsOf(result, choice);
  return JsonValue::Object({{"chunks", totals.chunks},
                            {"allocated_bytes", totals.allocated.count()},
                            {"waste_bytes", totals.waste.count()},
                            {"gathered_bytes", totals.gathered.count()}});
}

JsonValue RulesJson(const SearchReport& report) {
  JsonValue json = JsonValue::Array();
  for (const RuleReport& rule : report.rules) {
    JsonValue& one = json.Append(RuleJson(rule.rule));
    if (!rule.in_castor.empty()) {
      one["in_castor"] = CandidateWriter(report)(rule.in_castor);
    }
  }
  return json;
}

// What was found, in `json`.
void AddResult(const SearchReport& report, JsonValue& json) {
  const auto& groups = report.result.groups;
  json["candidates"] = JsonValue::Array();
  if (groups.empty()) {
    json["best"] = nullptr;
    json["recommended"] = nullptr;
    json["certificate"] = EmptyCertificateJson();
    json["certificates"] = JsonValue::Array();
    return;
  }
  const CandidateWriter candidates(report);
  JsonValue proofs = JsonValue::Array();
  JsonValue certificates = JsonValue::Array();
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string name =
        groups.size() > 1 ? GroupName(groups[g]) : std::string();
    for (const ChunkSizeCandidate& candidate : groups[g].candidates) {
      json["candidates"].Append(candidates(candidate, g));
    }
    proofs.Append(CertificateJson(BestMode(groups[g]), name));
    for (const ModeResult& mode : groups[g].modes) {
      certificates.Append(CertificateJson(mode, name));
    }
  }
  json["best"] = candidates(&GroupSearchResult::best);
  json["recommended"] = candidates(&GroupSearchResult::recommended);
  json["certificate"] = groups.size() == 1 ? proofs[0] : proofs;
  json["certificates"] = certificates;
  if (groups.size() > 1) {
    json["totals"] = JsonValue::Object(
        {{"best", TotalsJson(report.result, &GroupSearchResult::best)},
         {"recommended",
          TotalsJson(report.result, &GroupSearchResult::recommended)}});
  }
  json["rules"] = RulesJson(report);
}

// The way in which each layout of experts was searched, by its name.
JsonValue ExpertLayoutsJson(const SearchReport& report) {
  JsonValue json;
  const auto add = [&json](const SearchReport& one) {
    JsonValue result;
    result["model"] = ModelJson(one.model);
    AddResult(one, result);
    json[ExpertLayoutName(*one.experts)] = std::move(result);
  };
  add(report);
  for (const SearchReport& other : report.other_layouts) add(other);
  return json;
}

}  // namespace

JsonValue SearchJson(const SearchReport& report) {
  JsonValue json;
  json["schema"] = "castor.search/1";
  json["model"] = ModelJson(report.model);
  json["options"] = OptionsJson(report.options);
  json["alignment"] = JsonValue::Object(
      {{"q_elements", ChunkQuantum(report.options.pack.world).count()},
       {"a_elements", report.options.pack.align.count()}});
  if (report.machine) json["machine"] = MachineJson(*report.machine);
  AddResult(report, json);
  if (report.choice) {
    json["choice"] = JsonValue::Object(
        {{"pick", ChoicePickName(report.choice->pick)},
         {"candidate", CandidateWriter(report)(report.choice->groups)}});
    if (report.explain) json["explain"] = ExplainJson(report, *report.choice);
    if (!report.output.empty()) json["choice"]["output"] = report.output;
  }
  if (!report.other_layouts.empty()) {
    json["expert_layouts"] = ExpertLayoutsJson(report);
  }
  return json;
}

}  // namespace castor
