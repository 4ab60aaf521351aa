// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/trainer.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/executor.h"
#include "offload/internal/available_memory.h"
#include "offload/start_thread.h"
#include "tools/examples/gpt/gemm.h"
#include "tools/examples/gpt/group_meeting.h"
#include "tools/examples/gpt/rank_devices.h"
#include "tools/examples/gpt/rank_trainer.h"
#include "tools/examples/gpt/step_board.h"

namespace castor::gpt {
namespace {

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
Status FirstFailure(const std::vector<Result<RankOutcome>>& outcomes) {
  Status aborted;
  for (const Result<RankOutcome>& outcome : outcomes) {
    if (outcome.ok()) continue;
    if (outcome.status().code() != ErrorCode::kAborted) return outcome.status();
    if (aborted.ok()) aborted = outcome.status();
  }
  return aborted;
}

// The ranks of this process.
struct RanksHere {
  std::vector<std::unique_ptr<Communicator>> owned;  // of threads
  std::vector<Communicator*> all;
};

Result<RanksHere> MakeRanks(const TrainOptions& options, ThreadPool* pool,
                            RankGroup* group) {
  RanksHere ranks;
  if (group == nullptr) {
    ranks.owned = MakeInProcessWorld(
        {.world = options.ranks,
         .executor = pool,
         .timeout_ns = options.rank_timeout * 1'000'000'000});
    for (const auto& each : ranks.owned) ranks.all.push_back(each.get());
    return ranks;
  }
  CASTOR_ASSIGN_OR_RETURN(Communicator * one,
                          group->MakeCommunicator(ExchangeBufferFor(
                              options.engine.device_budget, group->world())));
  ranks.all.push_back(one);
  return ranks;
}

// What `train` returns; what it throws would end the process on a rank's
// thread.
template <typename Train>
Result<RankOutcome> OrFailure(const Train& train) try {
  return OrThreadLimit(train);
} catch (const std::exception& error) {
  return Status(Internal(error.what()));
}

// Of the ranks on this machine.
Status CheckMemoryOf(const TrainOptions& options, const RankGroup* group) {
  const double share =
      group == nullptr
          ? 1
          : static_cast<double>(group->local_world()) / group->world();
  return CheckMemory(TrainerBytes(options, /*reference=*/false) * share);
}

// `simulated`: the device is this process's own memory.
ProcessMemory MemoryOf(const std::vector<Result<RankOutcome>>& outcomes,
                       const TextData& data, bool simulated) {
  ProcessMemory memory;
  memory.peak = internal::ReadPeakResident().value_or(Bytes(0));
  memory.text = Bytes(data.size());
  for (const Result<RankOutcome>& each : outcomes) {
    const TierUse* const tiers = each->stats.tiers;
    if (simulated) memory.tiers += tiers[TierIndex(Tier::kDevice)].peak;
    memory.tiers += tiers[TierIndex(Tier::kHost)].peak + each->arena.peak;
    memory.activations += each->activations;
    memory.conversions += each->conversions;
  }
  return memory;
}

}  // namespace

Result<TrainOutcome> Train(const TrainOptions& options, const TextData& data,
                           const TrainHooks& hooks, RankGroup* group) {
  CASTOR_RETURN_IF_ERROR(Validate(options));
  CASTOR_RETURN_IF_ERROR(CheckMemoryOf(options, group));
  // Rather than when hours of training are to be saved.
  if (!options.save.empty() && (group == nullptr || group->rank() == 0)) {
    CASTOR_RETURN_IF_ERROR(CheckMaySave(options.save).WithContext("--save"));
  }
  CASTOR_RETURN_IF_ERROR(LoadBlas());
  const SteadyClock clock;
  TrainHooks own_hooks = hooks;
  std::optional<GroupMeeting> meeting;
  if (group != nullptr) {
    meeting.emplace(group, hooks.stop);
    own_hooks.stop = &meeting->stop();
    CASTOR_RETURN_IF_ERROR(meeting->AgreeOnRun(options, data.size()));
  }
  GroupMeeting* const others = meeting ? &*meeting : nullptr;
  ThreadPool pool(
      std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  CASTOR_ASSIGN_OR_RETURN(const RanksHere ranks,
                          MakeRanks(options, &pool, group));
  const std::vector<Communicator*>& world = ranks.all;
  const ZeroOptions zero = EngineOf(options, &pool);
  Device* const hardware = group == nullptr ? nullptr : group->device();
  if (hardware != nullptr && options.machine.has_value()) {
    return InvalidArgument(
        "--machine slows simulated devices down, and these ranks have real "
        "ones: leave it away");
  }
  std::optional<RankDevices> devices;
  if (options.machine.has_value()) {
    devices.emplace(*options.machine, static_cast<int>(world.size()),
                    zero.device_budget, &pool);
  }
  StepBoard board(options, own_hooks, &clock);
  std::vector<Result<RankOutcome>> outcomes(
      world.size(), Status(Internal("the rank did not end")));
  const auto train = [&](size_t rank) -> Result<RankOutcome> {
    ZeroOptions own = zero;
    if (devices.has_value()) {
      own.device = devices->device(rank);
      own.make_nvme_queue = devices->nvme_queue(rank);
    }
    if (hardware != nullptr) own.device = hardware;
    return RankTrainer(options, data, &board, others, world[rank], hardware)
        .Run(own);
  };
  std::vector<std::thread> threads;
  const auto start = [&](size_t rank) {
    threads.push_back(StartThread([&, rank] {
      outcomes[rank] = OrFailure([&] { return train(rank); });
      // A rank that fails before it has an engine ends the world too.
      if (!outcomes[rank].ok()) {
        world[rank]->Abort(outcomes[rank].status());
        board.Abandon();
      }
    }));
    return OkStatus();
  };
  Status started;
  for (size_t rank = 0; started.ok() && rank < world.size(); ++rank) {
    started = OrThreadLimit([&]() -> Status { return start(rank); });
  }
  if (!started.ok()) {
    for (Communicator* const rank : world) rank->Abort(started);
    board.Abandon();
  }
  for (std::thread& thread : threads) thread.join();
  CASTOR_RETURN_IF_ERROR(started);
  CASTOR_RETURN_IF_ERROR(FirstFailure(outcomes));

  TrainOutcome outcome;
  for (const Result<RankOutcome>& each : outcomes) {
    outcome.ranks.push_back(each->stats);
    outcome.arenas.push_back(each->arena);
  }
  if (devices.has_value()) outcome.links = devices->links();
  if (others != nullptr) {
    CASTOR_RETURN_IF_ERROR(others->GatherNumbers(&outcome));
  }
  outcome.memory = MemoryOf(outcomes, data, hardware == nullptr);
  outcome.trace = std::move(outcomes.front()->trace);
  outcome.placed_by_rules = std::move(outcomes.front()->placed_by_rules);
  outcome.digests = outcomes.front()->digests;
  outcome.final_digest = outcomes.front()->final_digest;
  outcome.checkpoint = outcomes.front()->checkpoint;
  outcome.save_failure = outcomes.front()->save_failure;
  outcome.stopped_early = board.stopped_early();
  outcome.steps_without_loss = board.steps_without_loss();
  outcome.steps = board.TakeReports();
  outcome.seconds = outcome.steps.seconds();
  return outcome;
}

}  // namespace castor::gpt
