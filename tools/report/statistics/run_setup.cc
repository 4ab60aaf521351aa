// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/run_setup.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "chunk/text/json_value.h"
#include "collectives/sealing/run_chunks.h"
#include "collectives/zero_config.h"
#include "placement/machine/tier_model_file.h"

namespace castor {
namespace {

Status Keep(const RunDocument& document, std::string_view schema,
            const StateNames& states, RunSetup* setup) {
  if (schema == kLayoutSchema) {
    CASTOR_ASSIGN_OR_RETURN(setup->layout, ParseLayout(document.text));
  } else if (schema == kConfigSchema) {
    ZeroOptions options;
    EngineFiles files;
    CASTOR_RETURN_IF_ERROR(
        ReadConfig(document.text, EngineOptions(&options, &files)).status());
    setup->options = std::move(options);
  } else if (schema == kMachineSchema) {
    CASTOR_ASSIGN_OR_RETURN(setup->machine, ParseTierModel(document.text));
  } else if (schema == kTraceSchema) {
    CASTOR_ASSIGN_OR_RETURN(setup->traces[document.rank],
                            ParseTrace(document.text));
  } else if (schema == kHomesSchema) {
    CASTOR_ASSIGN_OR_RETURN((setup->homes[{document.rank, document.step}]),
                            ParseHomes(document.text, states));
  } else {
    return Malformed("this castor does not know its schema");
  }
  return OkStatus();
}

}  // namespace

std::span<const HomesOfChunk> RunSetup::HomesIn(int32_t rank,
                                                int32_t step) const {
  // A rank whose homes are as another's wrote none of its own.
  const std::vector<HomesOfChunk>* found = nullptr;
  std::pair<int32_t, bool> best = {-1, false};  // step, whether the rank's own
  for (const auto& [rank_and_step, chunks] : homes) {
    const std::pair candidate(rank_and_step.second,
                              rank_and_step.first == rank);
    if (candidate.first > step || candidate <= best) continue;
    best = candidate;
    found = &chunks;
  }
  if (found == nullptr) return {};
  return *found;
}

const TraceFile* RunSetup::TraceOf(int32_t rank) const {
  const auto own = traces.find(rank);
  if (own != traces.end()) return &own->second;
  return traces.empty() ? nullptr : &traces.begin()->second;
}

RunSetup ReadSetup(const RunRecord& record) {
  RunSetup setup;
  const StateNames states = record.states();
  for (const RunDocument& document : record.documents) {
    std::string schema;
    Status kept;
    if (Result<JsonValue> json = ParseJson(document.text); !json.ok()) {
      kept = json.status();
    } else if (json->is_object() && json->contains("schema") &&
               (*json)["schema"].is_text()) {
      schema = (*json)["schema"].text();
      kept = Keep(document, schema, states, &setup);
    } else {
      kept = Malformed("it has no schema");
    }
    if (!kept.ok()) {
      setup.unread.push_back(
          fmt::format("a document of rank {}{}: {}", document.rank,
                      schema.empty() ? "" : ", " + schema, kept.message()));
    }
  }
  return setup;
}

std::vector<std::vector<std::string>> ParamsByChunk(const RunRecord& record,
                                                    const RunSetup& setup) {
  std::vector<std::vector<std::string>> names;
  if (setup.layout) {
    const LayoutFile& file = *setup.layout;
    names.resize(file.layout.chunks().size());
    for (size_t p = 0; p < file.params.size(); ++p) {
      const ChunkId chunk = file.layout.places()[p].chunk;
      if (chunk.valid()) names[chunk.index()].push_back(file.params[p].name);
    }
    return names;
  }
  if (record.ranks.empty()) return names;
  for (const RunChunkInfo& chunk : record.ranks.front().chunks) {
    names.emplace_back();
    for (const std::string_view name : ListedNames(chunk.params)) {
      names.back().emplace_back(name);
    }
  }
  return names;
}

}  // namespace castor
