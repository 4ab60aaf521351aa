// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/trainer.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/in_process_communicator.h"
#include "collectives/world/launch.h"
#include "collectives/zero_options.h"
#include "offload/host/available_memory.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/start_thread.h"
#include "tools/examples/gpt/model/gemm.h"
#include "tools/examples/gpt/rank_trainer.h"
#include "tools/examples/gpt/ranks/rank_devices.h"

namespace castor::gpt {
namespace {

using Outcomes = std::vector<Result<TrainOutcome>>;

ZeroOptions EngineOf(const TrainOptions& options, Executor* executor) {
  ZeroOptions engine = options.engine;
  if (engine.device_budget == Bytes(0)) {
    engine.device_budget = RoomForEverything(options);
    engine.keep_copies = options.keep_copies;
  }
  if (options.machine) engine.machine = options.machine;
  engine.executor = executor;
  return engine;
}

// Other ranks fail because one did: the one that says why comes first.
Status FirstFailure(const Outcomes& outcomes) {
  Status aborted;
  for (const Result<TrainOutcome>& outcome : outcomes) {
    if (outcome.ok()) continue;
    if (outcome.status().code() != ErrorCode::kAborted) return outcome.status();
    if (aborted.ok()) aborted = outcome.status();
  }
  return aborted;
}

// The ranks of this process.
struct RanksHere {
  // Of threads; a group has its own.
  std::vector<std::unique_ptr<Communicator>> engines;
  std::vector<std::unique_ptr<Communicator>> trainers;
  std::vector<RankPlace> places;

  void Abort(const Status& reason) const {
    for (const RankPlace& place : places) {
      place.engine->Abort(reason);
      place.trainer->Abort(reason);
    }
  }
};

Result<RanksHere> MakeRanks(const TrainOptions& options, ThreadPool* pool,
                            RankGroup* group) {
  RanksHere ranks;
  if (group != nullptr) {
    CASTOR_ASSIGN_OR_RETURN(Communicator * engine,
                            group->MakeEngine(ExchangeBufferFor(
                                options.engine.device_budget, group->world())));
    ranks.places.push_back({engine, &group->trainer(), group->device()});
    return ranks;
  }
  const InProcessOptions world = {.world = options.ranks,
                                  .executor = pool,
                                  .timeout_ns = options.rank_timeout_ns()};
  ranks.engines = MakeInProcessWorld(world);
  ranks.trainers = MakeInProcessWorld(world);
  for (size_t rank = 0; rank < ranks.engines.size(); ++rank) {
    ranks.places.push_back(
        {ranks.engines[rank].get(), ranks.trainers[rank].get()});
  }
  return ranks;
}

// What `train` returns; what it throws would end the process on a rank's
// thread.
template <typename Train>
Result<TrainOutcome> OrFailure(const Train& train) try {
  return OrThreadLimit(train);
} catch (const std::exception& error) {
  return Status(Internal(error.what()));
}

// Of all ranks here.
ProcessMemory MemoryOf(const Outcomes& outcomes, const TextData& data) {
  ProcessMemory memory;
  memory.peak = internal::ReadPeakResident().value_or(Bytes(0));
  memory.text = Bytes(data.size());
  for (const Result<TrainOutcome>& each : outcomes) {
    memory.tiers += each->memory.tiers;
    memory.activations += each->memory.activations;
    memory.conversions += each->memory.conversions;
  }
  return memory;
}

// Each on a thread of its own.
Status RunAll(const RanksHere& ranks,
              const std::function<Result<TrainOutcome>(size_t rank)>& train,
              Outcomes* outcomes) {
  std::vector<std::thread> threads;
  const Status started = OrThreadLimit([&] {
    for (size_t rank = 0; rank < outcomes->size(); ++rank) {
      threads.push_back(StartThread([&, rank] {
        Result<TrainOutcome>& outcome = (*outcomes)[rank];
        outcome = OrFailure([&] { return train(rank); });
        // A rank that fails before it has an engine ends the world too.
        if (!outcome.ok()) ranks.Abort(outcome.status());
      }));
    }
    return OkStatus();
  });
  if (!started.ok()) ranks.Abort(started);
  for (std::thread& thread : threads) thread.join();
  CASTOR_RETURN_IF_ERROR(started);
  return FirstFailure(*outcomes);
}

}  // namespace

void StepHistory::push_back(const StepReport& report) {
  ++size_;
  tokens_ += report.tokens;
  seconds_ += report.seconds;
  if (first_.size() < kFirst) first_.push_back(report);
  if (last_.size() == kLast) last_.pop_front();
  last_.push_back(report);
}

Bytes ProcessMemory::rest() const {
  return std::max(Bytes(0),
                  peak - tiers - activations - conversions - text - record);
}

Result<TrainOutcome> Train(const TrainOptions& options, const TextData& data,
                           const TrainHooks& hooks, RankGroup* group) {
  CASTOR_RETURN_IF_ERROR(Validate(options));
  // Of the ranks on this machine.
  const double share =
      group == nullptr
          ? 1
          : static_cast<double>(group->local_world()) / group->world();
  CASTOR_RETURN_IF_ERROR(CheckMemory(TrainerBytes(options) * share));
  // Rather than when hours of training are to be saved.
  std::unique_ptr<const FolderHold> hold;
  if (!options.save.empty() && (group == nullptr || group->rank() == 0)) {
    Result<std::unique_ptr<const FolderHold>> taken = HoldToSave(options.save);
    if (!taken.ok()) return taken.status().WithContext("--save");
    hold = *std::move(taken);
  }
  Device* const hardware = group == nullptr ? nullptr : group->device();
  if (hardware != nullptr && options.machine.has_value()) {
    return InvalidArgument(
        "--machine slows simulated devices down, and these ranks have real "
        "ones: leave it away");
  }
  CASTOR_RETURN_IF_ERROR(LoadBlas());
  ThreadPool pool(
      std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  CASTOR_ASSIGN_OR_RETURN(RanksHere ranks, MakeRanks(options, &pool, group));
  const ZeroOptions zero = EngineOf(options, &pool);
  std::optional<RankDevices> devices;
  if (options.machine.has_value()) {
    devices.emplace(*options.machine, static_cast<int>(ranks.places.size()),
                    zero.device_budget, &pool);
  }
  const auto train = [&](size_t rank) -> Result<TrainOutcome> {
    ZeroOptions own = zero;
    RankPlace place = ranks.places[rank];
    if (hardware != nullptr) own.device = hardware;
    if (devices.has_value()) {
      own.device = devices->device(rank);
      own.make_nvme_queue = devices->nvme_queue(rank);
      place.links = [&devices, rank] { return devices->links(rank); };
    }
    const TrainHooks silent = {.on_step = {}, .stop = hooks.stop};
    return TrainRank(options, data, rank == 0 ? hooks : silent, place, own);
  };
  Outcomes outcomes(ranks.places.size(),
                    Status(Internal("the rank did not end")));
  CASTOR_RETURN_IF_ERROR(RunAll(ranks, train, &outcomes));
  const ProcessMemory memory = MemoryOf(outcomes, data);
  TrainOutcome outcome = *std::move(outcomes.front());
  outcome.memory = memory;
  return outcome;
}

}  // namespace castor::gpt
