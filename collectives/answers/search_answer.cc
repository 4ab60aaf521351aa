// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/search_answer.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <variant>

#include "chunk/base/dtype.h"
#include "chunk/chunk_layout.h"
#include "chunk/search/layer_certificate.h"
#include "chunk/search/search_certificate.h"

namespace castor {
namespace {

template <typename Range, typename Function>
JsonValue ListOf(const Range& range, const Function& json_of) {
  JsonValue list = JsonValue::Array();
  for (const auto& each : range) list.Append(json_of(each));
  return list;
}

JsonValue Seconds(const std::optional<double>& seconds) {
  return seconds ? JsonValue(*seconds) : JsonValue();
}

JsonValue TransferJson(const StepCost& cost) {
  JsonValue json;
  for (const StepLink link : kStepLinkOrder) {
    json[fmt::format("{}_seconds", StepLinkName(link))] =
        Seconds(cost.on(link));
  }
  json["overlapped_seconds"] = Seconds(cost.overlapped_seconds());
  json["serial_seconds"] = Seconds(cost.serial_seconds());
  return json;
}

JsonValue CandidateJson(const SearchFindings& found, size_t g,
                        const ChunkSizeCandidate& c) {
  const GroupSearchResult& group = found.result.groups[g];
  JsonValue json;
  json["mode"] = SearchModeName(c.mode);
  if (found.result.groups.size() > 1) json["group"] = GroupName(group);
  json["chunk_elements"] = c.chunk_size.count();
  json["chunk_bytes"] = c.chunk_bytes.count();
  json["chunks"] = c.chunks;
  json["oversize_chunks"] = c.oversize_chunks;
  json["allocated_elements"] = c.allocated.count();
  json["waste_elements"] = c.waste.count();
  json["waste_bytes"] = c.waste_bytes.count();
  json["waste_fraction"] = c.waste_fraction;
  json["gathered_bytes"] = c.gathered_bytes.count();
  if (found.machine) {
    json["transfer"] = TransferJson(TransferCost(found, group, c));
  }
  json["reason"] = c.reason;
  return json;
}

JsonValue ModelJson(const SearchedModel& model, const SearchResult& result) {
  const SearchTotals totals = TotalsOf(result);
  return JsonValue::Object(
      {{"parameters", totals.elements},
       {"tensors", model.tensors},
       {"elements", totals.elements},
       {"total_bytes", totals.bytes.count()},
       {"name", model.name},
       {"family", model.family.empty() ? JsonValue() : model.family},
       {"source", model.source},
       {"order", model.order},
       {"dropped", model.dropped}});
}

// What was asked for, so that the numbers can be checked without it.
void AddOptions(const SearchOptions& options, JsonValue* json) {
  const PackOptions& pack = options.pack;
  (*json)["options"] = JsonValue::Object(
      {{"min_chunk_bytes", options.min_chunk.count()},
       {"max_chunk_bytes", options.max_chunk.count()},
       {"world", pack.world},
       {"gathered_slots", options.gathered_slots},
       {"device_budget_bytes", options.device_budget
                                   ? JsonValue(options.device_budget->count())
                                   : JsonValue()},
       {"modes", ListOf(options.modes, SearchModeName)}});
  (*json)["alignment"] =
      JsonValue::Object({{"q_elements", ChunkQuantum(pack.world).count()},
                         {"a_elements", pack.align.count()}});
}

// The links that were used.
JsonValue MachineJson(const TierModel& machine) {
  JsonValue json;
  for (const StepLink link : kStepLinkOrder) {
    const std::optional<LinkModel> speed = SpeedOf(machine, link);
    if (!speed) continue;
    json[StepLinkName(link)] = JsonValue::Object(
        {{"bytes_per_second", speed->bytes_per_second},
         {IsRing(link) ? "step_latency_ns" : "latency_ns", speed->latency_ns}});
  }
  return json;
}

JsonValue RuleJson(const SearchFindings& found, const RuleReport& one) {
  const RuleResult& rule = one.rule;
  const RulePacking& packing = rule.packing;
  JsonValue json = JsonValue::Object(
      {{"rule", "gemini"}, {"chunk_elements", rule.chunk_size.count()}});
  json["claimed_waste_elements"] = rule.claimed_waste.count();
  json["claimed_waste_fraction"] = rule.claimed_fraction;
  json["ignored_parameters"] = rule.ignored_params;
  json["ignored_elements"] = rule.ignored.count();
  json["ignored_why"] = rule.ignored_why;
  json["unpacked_parameters"] = rule.unpacked_params;
  json["unpacked_elements"] = rule.unpacked.count();
  json["replicated"] = rule.replicated;
  json["chunks"] = static_cast<int64_t>(packing.chunks.size());
  json["own_chunks"] = packing.own_chunks;
  json["allocated_elements"] = packing.allocated.count();
  json["waste_elements"] = packing.waste().count();
  json["waste_fraction"] = packing.waste_fraction();
  json["in_castor"] = ChosenJson(found, one.in_castor);
  return json;
}

JsonValue ChosenJson(const SearchFindings& found,
                     ChunkSizeCandidate GroupSearchResult::*choice) {
  std::vector<ChunkSizeCandidate> chosen;
  for (const GroupSearchResult& group : found.result.groups) {
    chosen.push_back(group.*choice);
  }
  return castor::ChosenJson(found, chosen);
}

void AddFound(const SearchFindings& found, JsonValue* to) {
  JsonValue& json = *to;
  const std::vector<GroupSearchResult>& groups = found.result.groups;
  JsonValue& candidates = json["candidates"];
  candidates = JsonValue::Array();
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const ChunkSizeCandidate& c : groups[g].candidates) {
      candidates.Append(CandidateJson(found, g, c));
    }
  }
  if (groups.empty()) {
    json["best"] = JsonValue();
    json["recommended"] = JsonValue();
    // The proof of nothing: no parameter, no chunk, no waste.
    json["certificate"] =
        JsonValue::Object({{"lower_bound_waste_elements", 0},
                           {"optimal", true},
                           {"intervals", JsonValue::Array()}});
    json["certificates"] = JsonValue::Array();
    return;
  }
  JsonValue proofs = JsonValue::Array();
  JsonValue certificates = JsonValue::Array();
  for (const GroupSearchResult& group : groups) {
    const std::string name = groups.size() > 1 ? GroupName(group) : "";
    for (const ModeResult& mode : group.modes) {
      const JsonValue& proof = certificates.Append(CertificateJson(mode, name));
      if (mode.mode == group.best.mode) proofs.Append(proof);
    }
  }
  json["best"] = ChosenJson(found, &GroupSearchResult::best);
  json["recommended"] = ChosenJson(found, &GroupSearchResult::recommended);
  json["certificate"] = groups.size() == 1 ? proofs[0] : proofs;
  json["certificates"] = certificates;
  if (groups.size() > 1) {
    const auto totals = [&](ChunkSizeCandidate GroupSearchResult::*choice) {
      const SearchTotals all = TotalsOf(found.result, choice);
      return JsonValue::Object({{"chunks", all.chunks},
                                {"allocated_bytes", all.allocated.count()},
                                {"waste_bytes", all.waste.count()},
                                {"gathered_bytes", all.gathered.count()}});
    };
    json["totals"] = JsonValue::Object(
        {{"best", totals(&GroupSearchResult::best)},
         {"recommended", totals(&GroupSearchResult::recommended)}});
  }
  // A list, of what was once more than one.
  json["rules"] = JsonValue::Array();
  if (found.rule) json["rules"].Append(RuleJson(found, *found.rule));
}

}  // namespace

Result<std::optional<RuleReport>> ApplyRule(std::span<const ParamSpec> params,
                                            const SearchOptions& options,
                                            const SearchResult& result) {
  if (TotalsOf(result).elements == 0) return std::optional<RuleReport>();
  RuleReport report;
  CASTOR_ASSIGN_OR_RETURN(const std::vector<RuleParam> seen,
                          RuleParams(params));
  CASTOR_ASSIGN_OR_RETURN(report.rule,
                          ApplyGeminiRule(seen, {.world = options.pack.world}));
  CASTOR_ASSIGN_OR_RETURN(report.in_castor,
                          GeminiInCastor(report.rule.chunk_size, params,
                                         options.pack, options.gathered_slots));
  return std::optional(std::move(report));
}

std::string GroupName(const GroupSearchResult& group) {
  return fmt::format("{}{}", DTypeName(group.dtype),
                     group.trainable ? "" : " frozen");
}

double SearchTotals::waste_fraction() const {
  if (allocated == Bytes(0)) return 0;
  return static_cast<double>(waste.count()) /
         static_cast<double>(allocated.count());
}

SearchTotals TotalsOf(const SearchResult& result,
                      ChunkSizeCandidate GroupSearchResult::*choice) {
  SearchTotals totals;
  for (const GroupSearchResult& group : result.groups) {
    const ChunkSizeCandidate& chosen = group.*choice;
    totals.elements += group.payload.count();
    totals.bytes += BytesToHold(group.payload, group.dtype);
    totals.chunks += chosen.chunks;
    totals.allocated += BytesToHold(chosen.allocated, group.dtype);
    totals.waste += chosen.waste_bytes;
    totals.gathered += chosen.gathered_bytes;
  }
  return totals;
}

StepCost TransferCost(const SearchFindings& found,
                      const GroupSearchResult& group,
                      const ChunkSizeCandidate& candidate) {
  return ModelStep(*found.machine,
                   {.chunks = candidate.chunks,
                    .allocated = BytesToHold(candidate.allocated, group.dtype),
                    .trainable = group.trainable},
                   found.options.pack.world);
}

bool IsRing(StepLink link) {
  return link == StepLink::kAllGather || link == StepLink::kReduceScatter;
}

std::optional<LinkModel> SpeedOf(const TierModel& machine, StepLink link) {
  if (link == StepLink::kHostToDevice) return machine.host_to_device;
  if (link == StepLink::kDeviceToHost) return machine.device_to_host;
  const std::optional<RingModel>& ring = link == StepLink::kAllGather
                                             ? machine.all_gather
                                             : machine.reduce_scatter;
  if (!ring) return std::nullopt;
  return LinkModel{ring->bytes_per_second, ring->step_latency_ns};
}

JsonValue ChosenJson(const SearchFindings& found,
                     std::span<const ChunkSizeCandidate> of_groups) {
  if (of_groups.size() == 1) return CandidateJson(found, 0, of_groups[0]);
  JsonValue list = JsonValue::Array();
  for (size_t g = 0; g < of_groups.size(); ++g) {
    list.Append(CandidateJson(found, g, of_groups[g]));
  }
  return list;
}

JsonValue CertificateJson(const ModeResult& mode, const std::string& group) {
  JsonValue json;
  json["mode"] = SearchModeName(mode.mode);
  if (!group.empty()) json["group"] = group;
  json["lower_bound_waste_elements"] = mode.lower_bound_waste.count();
  json["optimal"] = mode.optimal;
  if (const auto* proof = std::get_if<SearchCertificate>(&mode.certificate)) {
    json["intervals"] =
        ListOf(proof->intervals, [](const CertificateInterval& interval) {
          return JsonValue::Object(
              {{"from_elements", interval.from.count()},
               {"to_elements", interval.to.count()},
               {"chunks", interval.chunks},
               {"oversize_elements", interval.oversize.count()}});
        });
    return json;
  }
  const auto& layers = std::get<LayerCertificate>(mode.certificate);
  json["repeat"] = JsonValue::Object({{"first", layers.repeat.first},
                                      {"params", layers.repeat.params},
                                      {"repeats", layers.repeat.repeats}});
  json["steps"] = ListOf(layers.steps, [](const LayerStep& step) {
    return JsonValue::Object({{"chunks_per_repeat", step.chunks_per_repeat},
                              {"chunk_elements", step.chunk_size.count()},
                              {"waste_elements", step.waste.count()}});
  });
  return json;
}

JsonValue SearchedJson(const SearchedModel& model,
                       const SearchFindings& found) {
  JsonValue json;
  json["model"] = ModelJson(model, found.result);
  AddFound(found, &json);
  return json;
}

JsonValue SearchJson(const SearchedModel& model, const SearchFindings& found) {
  JsonValue json;
  json["schema"] = "castor.search/1";
  json["model"] = ModelJson(model, found.result);
  AddOptions(found.options, &json);
  if (found.machine) json["machine"] = MachineJson(*found.machine);
  AddFound(found, &json);
  return json;
}

}  // namespace castor
