// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <utility>

#include "chunk/text/did_you_mean.h"
#include "chunk/text/glob.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/sealing/seal_plan.h"
#include "placement/trace/step_trace.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/report/statistics/step_detail.h"

namespace castor {
namespace {

std::string NamesText(const std::vector<std::string>& params) {
  constexpr size_t kNamed = 4;
  std::string names;
  for (size_t i = 0; i < params.size() && i < kNamed; ++i) {
    names += (i == 0 ? "" : ", ") + Shown(params[i]);
  }
  if (params.size() > kNamed) {
    names += fmt::format(" and {} more", params.size() - kNamed);
  }
  return names;
}

// The names of parameters that match, by chunk.
using NamesByChunk = std::map<ChunkId, std::vector<std::string>>;
Result<NamesByChunk> Matching(const PlanSubject& subject,
                              const PlanOutcome& outcome,
                              const std::string& pattern) {
  const std::vector<ParamSpec>& params = subject.model.params;
  const Glob glob(pattern);
  bool matched = false;
  NamesByChunk names;
  for (size_t p = 0; p < params.size(); ++p) {
    if (!glob.Matches(params[p].name)) continue;
    matched = true;
    const ChunkId chunk =
        outcome.layout.place(ParamId(static_cast<int32_t>(p))).chunk;
    // A parameter of size zero lies nowhere.
    if (chunk.valid()) names[chunk].push_back(params[p].name);
  }
  if (!matched) {
    std::vector<std::string> known;
    for (const ParamSpec& spec : params) known.push_back(spec.name);
    const std::optional<std::string> nearest = NearestName(pattern, known);
    return InvalidArgument(fmt::format(
        "{} matches no parameter{}", Quoted(pattern),
        nearest ? fmt::format("; the nearest name is {}", Quoted(*nearest))
                : std::string("; * stands for any characters")));
  }
  return names;
}

}  // namespace

Result<Document> ExplainHomes(const PlanSubject& subject,
                              const PlanOutcome& outcome,
                              const std::string& pattern) {
  CASTOR_ASSIGN_OR_RETURN(const NamesByChunk matching,
                          Matching(subject, outcome, pattern));
  const MemoryPlan& memory = outcome.seal->memory;
  Document doc;
  const auto explain = [&](const NamesByChunk::value_type& of_chunk) {
    const auto& [chunk, names] = of_chunk;
    std::string text =
        fmt::format("chunk {}, with {}\n", chunk.value(), NamesText(names));
    Table homes({}, {{"state"}, {"tier"}, {"why"}});
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StatePlace& place = memory.states[chunk.index()][k];
      if (place.bytes == Bytes(0)) continue;
      const auto kind = static_cast<StateKind>(k);
      const std::string_view state = memory.placement.names.of(kind);
      const std::string_view tier = TierName(place.home);
      const std::string why =
          WhyHome(memory, outcome.request.options, outcome.seal->bindings,
                  subject.model.params, chunk, kind);
      homes.Add({state, tier, why});
      doc.Line({"state", chunk.value(), state, tier, why});
      text += fmt::format("  {}\n", why);
    }
    const StepTraffic& traffic = outcome.run->by_chunk[chunk.index()];
    std::vector<std::string> moves;
    const auto add = [&](std::string_view link, const LinkTraffic& moved,
                         const std::optional<LinkModel>& speed) {
      if (moved.transfers == 0) return;
      doc.Line({"moves", chunk.value(), link, moved.bytes, moved.transfers});
      moves.push_back(fmt::format("{} {} in {}", FormatSize(moved.bytes), link,
                                  Plural(moved.transfers, "move")));
      if (!speed) return;
      const double seconds = LinkSeconds(*speed, moved.transfers, moved.bytes);
      moves.back() += fmt::format(" ({})", Value::Seconds(seconds).Page());
    };
    using enum Tier;
    const TierModel speeds = subject.machine.value_or(TierModel());
    add("nvme to host", traffic.on(kNvme, kHost), speeds.nvme_read);
    add("host to device", traffic.on(kHost, kDevice), speeds.host_to_device);
    add("within the device", traffic.on(kDevice, kDevice), std::nullopt);
    add("device to host", traffic.on(kDevice, kHost), speeds.device_to_host);
    add("host to nvme", traffic.on(kHost, kNvme), speeds.nvme_write);
    for (const auto& [link, sent] :
         {std::pair{"all-gather", traffic.all_gather},
          std::pair{"reduce-scatter", traffic.reduce_scatter}}) {
      if (sent.bytes > Bytes(0)) add(link, sent, std::nullopt);
    }
    if (moves.empty()) moves.push_back("nothing of it");
    doc.Gap();
    doc.Text(
        fmt::format("{}  a step moves {}\n", text, fmt::join(moves, ", ")));
    return Fields({{"chunk", chunk.value()},
                   {"params", ListOf(names)},
                   {"homes", homes.Json()},
                   {"step", StepTrafficJson(traffic)}});
  };
  doc.Set("chunks", ListOf(matching, explain));
  return doc;
}

JsonValue PlannedChunksJson(const PlanSubject& subject,
                            const PlanOutcome& outcome) {
  const std::vector<ParamSpec>& params = subject.model.params;
  const MemoryPlan& memory = outcome.seal->memory;
  std::vector<std::vector<std::string>> names(outcome.layout.chunks().size());
  for (size_t p = 0; p < params.size(); ++p) {
    const ChunkId chunk = outcome.layout.places()[p].chunk;
    if (chunk.valid()) names[chunk.index()].push_back(params[p].name);
  }
  JsonValue list = JsonValue::Array();
  for (size_t c = 0; c < names.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const ChunkInfo& info = outcome.layout.chunk(chunk);
    HomesOfChunk homes;
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StatePlace& place = memory.states[c][k];
      if (place.bytes == Bytes(0)) continue;
      homes[k] = {
          place.home, place.bytes,
          WhyHome(memory, outcome.request.options, outcome.seal->bindings,
                  params, chunk, static_cast<StateKind>(k))};
    }
    list.Append(ChunkJson(
        static_cast<int64_t>(c),
        BytesOf(info.size,
                outcome.layout.groups()[static_cast<size_t>(info.group)].dtype),
        names[c], homes, memory.placement.names));
  }
  return list;
}

Table LinkTable(const StepTraffic& traffic) {
  Table table({.word = "link"},
              {{"from"}, {"to"}, {"moved_bytes"}, {"transfers"}});
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      const LinkTraffic& link = traffic.on(from, to);
      if (link.transfers == 0) continue;
      table.Add({TierName(from), TierName(to), link.bytes, link.transfers});
    }
  }
  return table;
}

JsonValue StepTrafficJson(const StepTraffic& traffic) {
  return Fields({{"gathers", traffic.gathers},
                 {"fetches", traffic.fetches},
                 {"links", LinkTable(traffic).Json()},
                 {"all_gather_bytes", traffic.all_gather.bytes},
                 {"all_gathers", traffic.all_gather.transfers},
                 {"reduce_scatter_bytes", traffic.reduce_scatter.bytes},
                 {"reduce_scatters", traffic.reduce_scatter.transfers},
                 {"agreement_bytes", traffic.agreement},
                 {"updated_on_device_elements", traffic.updated_on_device},
                 {"updated_on_host_elements", traffic.updated_on_host}});
}

}  // namespace castor
