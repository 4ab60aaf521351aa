// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How an engine begins and ends: parameters registered, Seal, Close.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine/engine_sealing.h"
#include "collectives/engine/rank_words.h"
#include "collectives/engine/zero_engine_parts.h"
#include "collectives/sealing/seal_plan.h"

namespace castor {

using internal::EnginePhase;

ZeroEngine::Parts::Parts(const ZeroOptions& options, Communicator* comm)
    : base(options, comm) {}

ZeroEngine::Parts::~Parts() {
  const EnginePhase phase = base.progress.phase;
  if (phase == EnginePhase::kClosed) return;
  Communicator* const comm = base.model.comm;
  const Status failure = base.health.status();
  // Peers may be waiting for collectives that this rank will never make, of
  // which Seal has the first.
  if (comm->world() > 1) {
    comm->Abort(
        failure.ok()
            ? Aborted(fmt::format("rank {} left without closing its engine",
                                  comm->rank()))
            : failure.WithContext(fmt::format("rank {}", comm->rank())));
  }
  if (phase == EnginePhase::kOpen) return;
  const Status closed = ShutDown();
  for (const Status& status : {failure, closed}) {
    if (!status.ok()) base.model.options.log->Error(status.ToString());
  }
}

Result<std::unique_ptr<ZeroEngine>> ZeroEngine::Create(
    const ZeroOptions& options, Communicator* communicator) {
  CASTOR_CHECK(communicator != nullptr);
  CASTOR_CHECK(options.executor != nullptr);
  CASTOR_RETURN_IF_ERROR(CheckOptions(options, communicator->world()));
  return std::unique_ptr<ZeroEngine>(
      new ZeroEngine(std::make_unique<Parts>(options, communicator)));
}

ZeroEngine::ZeroEngine(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}
ZeroEngine::~ZeroEngine() = default;

Result<ParamId> ZeroEngine::Register(ParamSpec spec, Initializer initializer,
                                     std::string_view group) {
  internal::EngineModel& model = parts_->base.model;
  if (parts_->base.progress.phase != EnginePhase::kOpen) {
    return FailedPrecondition(fmt::format(
        "parameter {} comes too late: register before Seal()", spec.name));
  }
  const internal::TrainingScalars& scalars = parts_->base.scalars;
  const auto add = [&]() -> Status {
    CASTOR_RETURN_IF_ERROR(CheckTrains(spec, model.options.grad_mode));
    internal::EngineParam param;
    CASTOR_ASSIGN_OR_RETURN(param.size, CountElements(spec.shape, spec.dtype));
    const Result<size_t> found = scalars.groups.Find(group);
    if (!found.ok()) {
      return found.status().WithContext(fmt::format("parameter {}", spec.name));
    }
    param.group = *found;
    param.spec = std::move(spec);
    param.spec.whole =
        model.options.optimizer.kind == OptimizerKind::kCustom &&
        param.spec.trainable &&
        scalars.groups.SpanOf(param.group) == UpdateSpan::kParameter;
    if (param.spec.trainable) {
      param.spec.states = scalars.groups.StatesOf(param.group);
    }
    param.initializer = std::move(initializer);
    model.params.push_back(std::move(param));
    return OkStatus();
  };
  if (Status added = add(); !added.ok()) {
    // The others must not wait for this rank in Seal.
    if (model.comm->world() > 1) {
      model.comm->Abort(
          added.WithContext(fmt::format("rank {}", model.comm->rank())));
    }
    return added;
  }
  return ParamId(static_cast<int32_t>(model.params.size()) - 1);
}

Status ZeroEngine::Parts::BuildMemory(const SealOptions& declared,
                                      const SlabComing& coming,
                                      const RankPools* before) {
  internal::EngineSealing(base).ChooseGrads(declared);
  CASTOR_RETURN_IF_ERROR(base.memory.Build(declared, coming, before));
  late.Begin(declared);
  gathers.Begin();
  reducer.Begin();
  std::vector<bool> kept;
  if (!base.model.grads_in_place()) kept = late.rules().to_flush;
  return base.memory.BuildStore(&gathers, std::move(kept));
}

Status ZeroEngine::Seal(const SealOptions& declared) {
  auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  if (progress.phase != EnginePhase::kOpen) {
    return FailedPrecondition("the engine is sealed already");
  }
  Communicator* const comm = model.comm;
  const auto lane = [&](std::string_view name) -> std::unique_ptr<Lane> {
    const std::string of_rank = fmt::format("rank {} {}", comm->rank(), name);
    if (model.options.dry && model.options.dry->instant) {
      return std::make_unique<ThreadLane>(of_rank, health.OnFailure());
    }
    return std::make_unique<WorkerLane>(of_rank, model.options.executor,
                                        health.OnFailure());
  };
  lanes.comm = lane("collectives");
  lanes.reduce = lane("reductions");
  lanes.host = lane("host");
  for (size_t i = 0; i < internal::kUpdateLanes; ++i) {
    lanes.update[i] = lane(fmt::format("update {}", i));
  }
  lanes.updates.AddTurn(0);
  progress.params.resize(model.params.size());
  scalars.updates.resize(model.params.size());
  internal::EngineSealing sealing(parts_->base);
  Status status = sealing.CheckDevice();
  if (status.ok()) status = comm->CheckReduces(model.sharding.reduce_scope());
  if (status.ok()) status = sealing.CheckMicroBatches(declared);
  // A refusal that all ranks know leaves the world to another engine.
  bool all_know = false;
  if (status.ok()) {
    status = sealing.AgreeOnInputs(declared);
    // Of these inputs alone.
    if (status.ok()) status = sealing.BuildLayout(declared);
    all_know = !status.ok();
  }
  if (status.ok()) sealing.SetHeadroom(declared);
  if (status.ok()) status = sealing.BindHomes();
  if (status.ok()) {
    status = parts_->BuildMemory(declared);
    if (status.ok()) status = sealing.CheckStep(declared);
    if (status.ok() && declared.step) {
      status = memory.Adopt(*declared.step);
    }
    // A rank's own refusal has the raises as numbers.
    const Status of_all =
        internal::RankWords(parts_->base).AgreeOn(status, 0, "seal");
    if (status.ok()) status = of_all;
    all_know = !status.ok();
  }
  if (status.ok()) status = parts_->values.Initialize();
  if (status.ok()) status = sealing.WaitForOthers();
  if (!status.ok()) {
    // The others must not wait for this rank.
    if (comm->world() > 1 && (!all_know || !comm->Health().ok())) {
      comm->Abort(status.WithContext(fmt::format("rank {}", comm->rank())));
    }
    memory.Drop();
    progress.phase = EnginePhase::kClosed;
    return parts_->Told(status);
  }
  progress.phase = EnginePhase::kSealed;
  record.DescribeRank();
  memory.BeginStep(1);
  return OkStatus();
}

Status ZeroEngine::Close() {
  const auto& [model, health, progress, scalars, memory, lanes, record, rules] =
      parts_->base;
  const auto close = [&]() -> Status {
    if (progress.phase != EnginePhase::kSealed) return health.status();
    CASTOR_RETURN_IF_ERROR(rules.RequireNothingOpen("Close()"));
    CASTOR_RETURN_IF_ERROR(rules.RequireNoLeases("Close()"));
    if (parts_->checkpoints.saving()) {
      return FailedPrecondition(
          "a save is under way: call FinishSave() before Close()");
    }
    const Status closed = parts_->ShutDown();
    CASTOR_RETURN_IF_ERROR(health.status());
    return closed;
  };
  return parts_->Told(close());
}

Status ZeroEngine::Parts::ShutDown() {
  auto& [model, health, progress, scalars, memory, lanes, record, rules] = base;
  checkpoints.DropSave();
  for (Lane* const lane : {lanes.comm.get(), lanes.reduce.get(),
                           lanes.host.get(), &memory.device_lane()}) {
    lane->Drain().IgnoreError();
  }
  // Until here, lanes of hardware may have times for the recorder.
  memory.device().FinishTimes();
  memory.DropCopies();
  final_stats = stats();
  progress.phase = EnginePhase::kClosed;
  progress.parked = false;
  // A step that was left half done: its work is over, as the door asks for.
  reducer.Close();
  leases.DropCopies();
  return memory.Close();
}

EngineStats ZeroEngine::Parts::stats() const {
  if (base.progress.phase == EnginePhase::kClosed) return final_stats;
  EngineStats stats;
  if (base.progress.phase != EnginePhase::kSealed) return stats;
  base.memory.Tell(&stats);
  const Communicator& comm = *base.model.comm;
  stats.wire_sent = comm.stats().bytes_sent;
  stats.exchange = comm.buffer_bytes();
  stats.engine_copies = reducer.copies();
  stats.early_updates = optimizer.early().count();
  stats.guesses = optimizer.guesses().begun();
  stats.right_guesses = optimizer.guesses().committed();
  stats.reduce_scatters = reducer.reduce_scatters();
  const ChunkLayout& layout = *base.model.layout;
  stats.chunks = static_cast<int64_t>(layout.chunks().size());
  std::set<Bytes> sizes;
  for (const GroupInfo& group : layout.groups()) {
    if (group.chunks.empty()) continue;
    sizes.insert(BytesOf(group.chunk_size, group.dtype));
  }
  stats.chunk_sizes = static_cast<int64_t>(sizes.size());
  if (!sizes.empty()) stats.chunk_bytes = *sizes.rbegin();
  return stats;
}

}  // namespace castor
