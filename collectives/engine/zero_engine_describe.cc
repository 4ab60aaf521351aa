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
#include "chunk/text/json_value.h"
#include "collectives/engine/zero_engine_impl.h"
#include "collectives/sealing/run_chunks.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/world/value_hash.h"
#include "collectives/zero_config.h"
#include "offload/nvme/nvme_option.h"
#include "placement/homes/homes_file.h"
#include "placement/machine/tier_model_file.h"
#include "placement/trace/missing_grads.h"
#include "placement/trace/trace_file.h"

namespace castor {

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

void ZeroEngine::Impl::DescribeRank() const {
  if (options_.recorder == nullptr) return;
  RunRankInfo info;
  info.states = sharding_.states;
  info.rank = comm_->rank();
  info.world = comm_->world();
  info.stage = options_.stage;
  AddBudgets(options_, info.budget_bytes);
  std::vector<std::string_view> names;
  names.reserve(params_.size());
  for (const auto& param : params_) names.push_back(param.spec.name);
  info.chunks = RunChunksOf(*layout_, names);
  options_.recorder->AddRank(info);
  if (Result<std::string> layout = WriteLayout(Specs(), *layout_);
      layout.ok()) {
    AddDocument(*std::move(layout));
  }
  if (options_.machine) AddDocument(FormatTierModel(*options_.machine));
  DescribeHomes();
}

void ZeroEngine::Impl::DescribeHomes() const {
  if (options_.recorder == nullptr) return;
  RunHomesInfo info;
  info.rank = comm_->rank();
  info.step = static_cast<int32_t>(step_ + 1);
  AddBudgets(options_, info.budget_bytes);
  for (size_t state = 0; state < kStateKinds; ++state) {
    for (size_t tier = 0; tier < kAllTiers.size(); ++tier) {
      info.home_bytes[state][tier] =
          memory_.placement.bytes[state][tier].count();
    }
  }
  options_.recorder->AddHomes(info);
  AddDocument(WriteHomes(Homes(), sharding_.states));
  // What a function decides cannot be written down.
  const bool decided = std::ranges::any_of(
      options_.home_rules,
      [](const PlacementRule& r) { return r.decide != nullptr; });
  if (!decided) {
    ZeroOptions own = options_;
    EngineFiles none;
    AddDocument(WriteConfig(EngineOptions(&own, &none)));
  }
  for (Tier tier : kAllTiers) {
    RunEvent event =
        EventFor(RunEventKind::kTierBytes, ChunkId(), RunCause::kStart);
    event.to = tier;
    event.bytes = pools_->pool(tier).stats().in_use.count();
    event.begin_ns = event.end_ns = options_.clock->NowNs();
    options_.recorder->Record(event);
  }
}

void ZeroEngine::Impl::AddDocument(std::string text) const {
  options_.recorder->AddDocument(
      {comm_->rank(), static_cast<int32_t>(step_ + 1), std::move(text)});
}

std::vector<HomesOfChunk> ZeroEngine::Impl::Homes() const {
  const std::vector<ParamSpec> specs = Specs();
  std::vector<HomesOfChunk> homes(memory_.states.size());
  for (size_t c = 0; c < homes.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    const std::string prefix = fmt::format("chunk {}: ", c);
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StatePlace& place = memory_.states[c][k];
      if (place.bytes == Bytes(0)) continue;
      std::string why = WhyHome(memory_, options_, bindings_, specs, chunk,
                                static_cast<StateKind>(k));
      if (why.starts_with(prefix)) why.erase(0, prefix.size());
      homes[c][k] = {place.home, place.bytes, std::move(why)};
    }
  }
  return homes;
}

// A trace that changes in every step is described in steps 1, 2, 4, 8 and so
// on, but for one that is as before.
void ZeroEngine::Impl::DescribeTrace() {
  if (options_.recorder == nullptr || !std::has_single_bit(uint64_t(step_))) {
    return;
  }
  std::string text = WriteTrace(RecordedTrace());
  internal::ValueHash hash;
  hash.Add(std::string_view(text));
  if (described_trace_ == hash.signed_value()) return;
  described_trace_ = hash.signed_value();
  AddDocument(std::move(text));
}

TraceFile ZeroEngine::Impl::RecordedTrace() const {
  TraceFile trace;
  trace.rank = comm_->rank();
  trace.world = comm_->world();
  if (sharding_.shard_group < trace.world) {
    trace.shard_group = sharding_.shard_group;
    trace.spans_world = trace.shard_group > 0 && sharding_.spans_world;
  }
  trace.chunks = TraceChunks(*layout_);
  for (ParamId id : first_uses_) trace.params.push_back(Name(id));
  for (size_t p = 0; p < acquired_.size(); ++p) {
    if (!acquired_[p]) trace.params.push_back(params_[p].spec.name);
  }
  // The engine takes any name, and one name twice; a trace does not.
  if (!CheckTraceParams(trace.params).ok()) trace.params.clear();
  if (manager_ == nullptr) return trace;
  trace.step = manager_->last_step();
  trace.step.updates_early = updated_early_;
  trace.step.missing_grads = MissingGradsOf(
      *layout_, trace.step.accesses,
      [this](ParamId id) { return params_[id.index()].had_grad; },
      [this](ParamId id) {
        // What is no text of JSON is not told.
        const std::string& name = params_[id.index()].spec.name;
        return JsonText(name).empty() ? std::string() : name;
      });
  return trace;
}

}  // namespace castor
