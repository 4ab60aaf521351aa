// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/budget_text.h"
#include "collectives/run_chunks.h"
#include "collectives/zero_engine_impl.h"
#include "offload/nvme/nvme_option.h"
#include "placement/trace_file.h"

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
  info.rank = comm_->rank();
  info.world = comm_->world();
  info.stage = options_.stage;
  AddBudgets(options_, info.budget_bytes);
  std::vector<std::string_view> names;
  names.reserve(params_.size());
  for (const auto& param : params_) names.push_back(param.spec.name);
  info.chunks = RunChunksOf(*layout_, names);
  options_.recorder->AddRank(info);
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
  for (Tier tier : kAllTiers) {
    RunEvent event =
        EventFor(RunEventKind::kTierBytes, ChunkId(), RunCause::kStart);
    event.to = tier;
    event.bytes = pools_->pool(tier).stats().in_use.count();
    event.begin_ns = event.end_ns = options_.clock->NowNs();
    options_.recorder->Record(event);
  }
}

void ZeroEngine::Impl::Mark(std::string_view words) const {
  if (options_.recorder == nullptr) return;
  options_.recorder->AddMark({.at_ns = options_.clock->NowNs(),
                              .rank = comm_->rank(),
                              .step = static_cast<int32_t>(step_ + 1),
                              .words = std::string(words)});
}

int64_t ZeroEngine::Impl::Moment() const {
  if (manager_ == nullptr) return -1;
  return ending_moment_ >= 0 ? ending_moment_ : manager_->moment();
}

RunEvent ZeroEngine::Impl::EventFor(RunEventKind kind, ChunkId chunk,
                                    RunCause cause) const {
  RunEvent event;
  event.kind = kind;
  event.cause = cause;
  event.rank = comm_->rank();
  event.step = static_cast<int32_t>(step_ + 1);
  event.moment = static_cast<int32_t>(Moment());
  event.chunk = chunk.value();
  return event;
}

// Notes the time at which `lane` gets here, as the begin or the end of `event`;
// the end records it.
void ZeroEngine::Impl::RecordSpan(Lane& lane,
                                  const std::shared_ptr<RunEvent>& event,
                                  bool begin) const {
  if (options_.recorder == nullptr) return;
  lane.NoteTime(options_.clock,
                [event, begin, recorder = options_.recorder](int64_t ns) {
                  (begin ? event->begin_ns : event->end_ns) = ns;
                  if (!begin) recorder->Record(*event);
                });
}

void ZeroEngine::Impl::RecordLeaseBegin(Lane& lane,
                                        const LeaseArena::Lease& lease,
                                        Bytes size) {
  manager_->SetLeased(leases_.in_use());
  if (options_.recorder == nullptr) return;
  auto event = std::make_shared<RunEvent>(
      EventFor(RunEventKind::kLease, ChunkId(), RunCause::kNone));
  event->bytes = size.count();
  RecordSpan(lane, event, true);
  lease_events_[lease.id] = std::move(event);
}

void ZeroEngine::Impl::RecordLeaseEnd(Lane& lane, int32_t lease) {
  // A lease may end after an engine that failed.
  if (manager_ != nullptr) {
    manager_->SetLeased(leases_.in_use() - leases_.SizeOf(lease));
  }
  const auto begun = lease_events_.find(lease);
  if (begun == lease_events_.end()) return;
  RecordSpan(lane, begun->second, false);
  lease_events_.erase(begun);
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
  if (manager_ != nullptr) trace.step = manager_->last_step();
  return trace;
}

}  // namespace castor
