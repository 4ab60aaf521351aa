// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_explain.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/glob.h"
#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "collectives/seal_plan.h"
#include "placement/trace.h"

namespace castor {
namespace {

StepTraffic TrafficOfChunk(const PlanOutcome& outcome, ChunkId chunk) {
  std::vector<int64_t> gathers(outcome.layout.chunks().size(), 0);
  gathers[chunk.index()] = outcome.forecast->gathers[chunk.index()];
  std::vector<int64_t> loads(outcome.layout.chunks().size(), 0);
  loads[chunk.index()] = outcome.forecast->loads[chunk.index()];
  Trace trace;
  for (const Access& access : outcome.step.accesses) {
    if (access.chunk == chunk) trace.push_back(access);
  }
  return TrafficOf(outcome.layout, outcome.seal->sharding, outcome.seal->memory,
                   {.gathers = gathers, .loads = loads, .trace = &trace});
}

}  // namespace

Result<std::vector<ExplainedChunk>> ExplainHomes(const PlanSubject& subject,
                                                 const PlanOutcome& outcome,
                                                 const std::string& pattern) {
  const std::vector<ParamSpec>& params = subject.model.params;
  const Glob glob(pattern);
  bool matched = false;
  std::map<ChunkId, std::vector<std::string>> names;  // by chunk
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
  const MemoryPlan& memory = outcome.seal->memory;
  std::vector<ExplainedChunk> explained;
  for (auto& [chunk, of_chunk] : names) {
    ExplainedChunk& one = explained.emplace_back();
    one.chunk = chunk;
    one.params = std::move(of_chunk);
    one.traffic = TrafficOfChunk(outcome, chunk);
    for (size_t k = 0; k < kStateKinds; ++k) {
      if (memory.states[chunk.index()][k].bytes == Bytes(0)) continue;
      const auto state = static_cast<StateKind>(k);
      one.homes.push_back(
          {state, memory.states[chunk.index()][k].home,
           WhyHome(memory, outcome.request.options, outcome.seal->bindings,
                   params, chunk, state)});
    }
  }
  return explained;
}

}  // namespace castor
