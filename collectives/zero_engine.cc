// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/text/json_value.h"
#include "collectives/engine/zero_engine_parts.h"
#include "placement/trace/missing_grads.h"
#include "placement/trace/trace_file.h"

namespace castor {

MemoryLease::MemoryLease(MemoryLease&& other) noexcept {
  *this = std::move(other);
}

MemoryLease& MemoryLease::operator=(MemoryLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  engine_ = std::exchange(other.engine_, nullptr);
  lanes_ = std::move(other.lanes_);
  lease_ = other.lease_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = other.size_;
  return *this;
}

void MemoryLease::AlsoUsedOn(Lane& lane) {
  if (std::ranges::find(lanes_, &lane) == lanes_.end()) lanes_.push_back(&lane);
}

void MemoryLease::Release() {
  if (engine_ == nullptr) return;
  engine_->Return(lease_, lanes_);
  engine_ = nullptr;
  data_ = nullptr;
}

EvaluateScope::EvaluateScope(EvaluateScope&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)) {}

EvaluateScope& EvaluateScope::operator=(EvaluateScope&& other) noexcept {
  if (this == &other) return *this;
  End();
  engine_ = std::exchange(other.engine_, nullptr);
  return *this;
}

void EvaluateScope::End() {
  if (engine_ == nullptr) return;
  engine_->EndEvaluation();
  engine_ = nullptr;
}

Result<ParamId> ZeroEngine::Find(std::string_view name) const {
  const auto& params = parts_->base.model.params;
  for (size_t p = 0; p < params.size(); ++p) {
    if (params[p].spec.name == name) return ParamId(static_cast<int32_t>(p));
  }
  return InvalidArgument(fmt::format(
      "no parameter is called {}; {} are registered", name, params.size()));
}

const ChunkLayout& ZeroEngine::layout() const {
  return *parts_->base.model.layout;
}
const StateNames& ZeroEngine::state_names() const {
  return parts_->base.model.sharding.states;
}
EngineStats ZeroEngine::stats() const { return parts_->stats(); }
int ZeroEngine::rank() const { return parts_->base.model.comm->rank(); }
int ZeroEngine::world() const { return parts_->base.model.comm->world(); }
void ZeroEngine::Mark(std::string_view words) const {
  parts_->base.record.Mark(words);
}

TraceFile ZeroEngine::RecordedTrace() const {
  const auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  const Sharding& sharding = model.sharding;
  TraceFile trace;
  trace.rank = model.comm->rank();
  trace.world = model.comm->world();
  if (sharding.shard_group < trace.world) {
    trace.shard_group = sharding.shard_group;
    trace.spans_world = trace.shard_group > 0 && sharding.spans_world;
  }
  trace.chunks = TraceChunks(*model.layout);
  for (ParamId id : parts_->leases.FirstUses()) {
    trace.params.push_back(model.Name(id));
  }
  // The engine takes any name, and one name twice; a trace does not.
  if (!CheckTraceParams(trace.params).ok()) trace.params.clear();
  const std::optional<StepTrace> last = memory.last_step();
  if (!last) return trace;
  trace.step = *last;
  trace.step.updates_early = parts_->optimizer.early().were_allowed();
  trace.step.missing_grads = MissingGradsOf(
      *model.layout, trace.step.accesses,
      [&](ParamId id) { return progress.params[id.index()].had_grad; },
      [&](ParamId id) {
        // What is no text of JSON is not told.
        const std::string& name = model.Name(id);
        return JsonText(name).empty() ? std::string() : name;
      });
  return trace;
}

std::optional<Tier> ZeroEngine::Home(ParamId param, StateKind state) const {
  const internal::EngineModel& model = parts_->base.model;
  CASTOR_CHECK(parts_->base.progress.phase == internal::EnginePhase::kSealed);
  CASTOR_CHECK(param.valid() && param.index() < model.params.size());
  const ChunkId chunk = model.chunk_of(param);
  if (!chunk.valid()) return std::nullopt;
  const StatePlace& place =
      parts_->base.memory.plan()
          .states[chunk.index()][static_cast<size_t>(state)];
  if (place.bytes == Bytes(0)) return std::nullopt;
  return place.home;
}

std::string ZeroEngine::ExplainHome(ChunkId chunk, StateKind state) const {
  CASTOR_CHECK(parts_->base.progress.phase == internal::EnginePhase::kSealed);
  return parts_->base.record.WhyHome(chunk, state);
}

std::vector<std::string> ZeroEngine::PlacedByRules() const {
  CASTOR_CHECK(parts_->base.progress.phase == internal::EnginePhase::kSealed);
  return parts_->base.record.PlacedByRules();
}

}  // namespace castor
