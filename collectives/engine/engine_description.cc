// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the record of a run says of its engine: ranks, chunks, homes, and the
// documents with which others plan and simulate the run again.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/layout_file.h"
#include "chunk/text/budget_text.h"
#include "collectives/engine/engine_record.h"
#include "collectives/sealing/run_chunks.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/world/value_hash.h"
#include "collectives/zero_config.h"
#include "offload/nvme/nvme_option.h"
#include "placement/machine/tier_model_file.h"

namespace castor::internal {
namespace {

// By tier; 0 where none was given.
void AddBudgets(const ZeroOptions& options, int64_t (&budgets)[3]) {
  const auto add = [&](Tier tier, std::optional<Bytes> budget) {
    if (!budget || IsUnlimited(*budget)) return;
    budgets[TierIndex(tier)] = budget->count();
  };
  add(Tier::kDevice, options.device_budget);
  add(Tier::kHost, options.host_budget);
  if (!options.nvme.empty()) add(Tier::kNvme, NvmeLimit(options.nvme));
}

}  // namespace

void EngineRecord::DescribeRank() const {
  if (model_.options.recorder == nullptr) return;
  RunRankInfo info;
  info.states = model_.sharding.states;
  info.rank = model_.comm->rank();
  info.world = model_.comm->world();
  info.stage = model_.options.stage;
  AddBudgets(model_.options, info.budget_bytes);
  std::vector<std::string_view> names;
  names.reserve(model_.params.size());
  for (const EngineParam& param : model_.params)
    names.push_back(param.spec.name);
  info.chunks = RunChunksOf(*model_.layout, names);
  model_.options.recorder->AddRank(info);
  if (Result<std::string> layout = WriteLayout(model_.Specs(), *model_.layout);
      layout.ok()) {
    AddDocument(*std::move(layout));
  }
  if (model_.options.machine)
    AddDocument(FormatTierModel(*model_.options.machine));
  DescribeHomes();
}

void EngineRecord::DescribeHomes() const {
  if (model_.options.recorder == nullptr) return;
  RunHomesInfo info;
  info.rank = model_.comm->rank();
  info.step = progress_.number();
  AddBudgets(model_.options, info.budget_bytes);
  for (size_t state = 0; state < kStateKinds; ++state) {
    for (size_t tier = 0; tier < kAllTiers.size(); ++tier) {
      info.home_bytes[state][tier] =
          memory_.plan().placement.bytes[state][tier].count();
    }
  }
  model_.options.recorder->AddHomes(info);
  AddDocument(WriteHomes(Homes(), model_.sharding.states));
  // What a function decides cannot be written down.
  const bool decided = std::ranges::any_of(
      model_.options.home_rules,
      [](const PlacementRule& r) { return r.decide != nullptr; });
  if (!decided) {
    ZeroOptions own = model_.options;
    EngineFiles none;
    AddDocument(WriteConfig(EngineOptions(&own, &none)));
  }
  for (Tier tier : kAllTiers) {
    RunEvent event =
        EventFor(RunEventKind::kTierBytes, ChunkId(), RunCause::kStart);
    event.to = tier;
    event.bytes = memory_.pool(tier).stats().in_use.count();
    event.begin_ns = event.end_ns = model_.options.clock->NowNs();
    model_.options.recorder->Record(event);
  }
}

void EngineRecord::AddDocument(std::string text) const {
  model_.options.recorder->AddDocument(
      {model_.comm->rank(), progress_.number(), std::move(text)});
}

std::vector<HomesOfChunk> EngineRecord::Homes() const {
  const std::vector<ParamSpec> specs = model_.Specs();
  std::vector<HomesOfChunk> homes(memory_.plan().states.size());
  for (size_t c = 0; c < homes.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const std::string prefix = fmt::format("chunk {}: ", c);
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StatePlace& place = memory_.plan().states[c][k];
      if (place.bytes == Bytes(0)) continue;
      std::string why =
          castor::WhyHome(memory_.plan(), model_.options, model_.bindings,
                          specs, chunk, static_cast<StateKind>(k));
      if (why.starts_with(prefix)) why.erase(0, prefix.size());
      homes[c][k] = {place.home, place.bytes, std::move(why)};
    }
  }
  return homes;
}

bool EngineRecord::describes_trace() const {
  return model_.options.recorder != nullptr &&
         std::has_single_bit(static_cast<uint64_t>(progress_.steps));
}

void EngineRecord::DescribeTrace(const TraceFile& trace) {
  std::string text = WriteTrace(trace);
  ValueHash hash;
  hash.Add(std::string_view(text));
  if (described_trace_ == hash.signed_value()) return;
  described_trace_ = hash.signed_value();
  AddDocument(std::move(text));
}

std::string EngineRecord::WhyHome(ChunkId chunk, StateKind state) const {
  return castor::WhyHome(memory_.plan(), model_.options, model_.bindings,
                         model_.Specs(), chunk, state);
}

std::vector<std::string> EngineRecord::PlacedByRules() const {
  const std::vector<ParamSpec> specs = model_.Specs();
  std::vector<std::string> placed;
  for (size_t c = 0; c < model_.bindings.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const bool exists = memory_.plan().states[c][k].bytes > Bytes(0);
      if (!exists || model_.bindings[c][k].rule < 0) continue;
      placed.push_back(ExplainPlacement(
          memory_.plan().placement, model_.bindings, model_.options.home_rules,
          specs, ChunkId(static_cast<int32_t>(c)), static_cast<StateKind>(k)));
    }
  }
  return placed;
}

}  // namespace castor::internal
