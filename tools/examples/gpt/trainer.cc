// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_folder.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_engine.h"
#include "offload/device.h"
#include "offload/executor.h"
#include "offload/jemalloc_arena.h"
#include "offload/lane.h"
#include "offload/linked_jemalloc.h"
#include "offload/pinned_arena.h"
#include "placement/run_event.h"
#include "placement/trace_file.h"
#include "tools/examples/gpt/engine_params.h"
#include "tools/examples/gpt/gemm.h"
#include "tools/examples/gpt/group_meeting.h"
#include "tools/examples/gpt/model.h"
#include "tools/examples/gpt/rank_devices.h"
#include "tools/examples/gpt/resume.h"
#include "tools/examples/gpt/step_board.h"

namespace castor::gpt {
namespace {

ZeroOptions EngineOptions(const TrainOptions& options, Executor* executor) {
  ZeroOptions zero = options.config.value_or(ZeroOptions());
  if (!options.config) {
    zero.optimizer = OptimizerOf(options);
    zero.groups = GroupsOf(options);
  }
  zero.stage = options.stage;
  zero.shard_group = options.shard_group;
  zero.optimizer_span = options.optimizer_span;
  zero.clip_norm = options.clip_norm;
  zero.loss_scaling = options.loss_scaling;
  zero.grad_mode = options.grad_mode;
  zero.accumulation = options.accumulation;
  zero.chunk_size = options.chunk_size;
  zero.layout = options.layout;
  zero.device_budget = options.device_budget > Bytes(0)
                           ? options.device_budget
                           : RoomForEverything(options);
  zero.host_budget = options.host_budget;
  zero.nvme = options.nvme;
  zero.prefetch_depth = options.prefetch_depth;
  zero.policy = options.policy;
  zero.home_limits = options.home_limits;
  zero.home_rules = options.home_rules;
  zero.machine = options.machine;
  if (options.plan) {
    const PlanFile& plan = options.plan->plan;
    zero.align = plan.align;
    zero.chunk_size = plan.chunk_size;
    zero.min_chunk = plan.min_chunk;
    zero.max_chunk = plan.max_chunk;
    if (!zero.machine) zero.machine = options.plan->machine;
  }
  zero.executor = executor;
  zero.recorder = options.recorder;
  zero.log = options.log;
  return zero;
}

// What one rank leaves behind.
struct RankOutcome {
  EngineStats stats;
  PinnedArenaStats arena;
  std::map<int64_t, uint64_t> digests;
  uint64_t final_digest = 0;
  std::string checkpoint;
  Status save_failure;
  TraceFile trace;  // of rank 0, as is the next
  std::vector<std::string> placed_by_rules;
};

// One rank, on its own thread.
class RankTrainer {
 public:
  // `meeting`: of the processes that the ranks are; null where they are
  // threads.
  // `device`: what the rank computes next to; null: host memory.
  RankTrainer(const TrainOptions& options, const TextData& data,
              StepBoard* board, GroupMeeting* meeting,
              Communicator* communicator, Device* device)
      : options_(options),
        data_(data),
        board_(board),
        meeting_(meeting),
        communicator_(communicator),
        device_(device),
        lane_(MakeLane(fmt::format("compute {}", communicator->rank()),
                       device)) {}

  Result<RankOutcome> Run(const ZeroOptions& zero) {
    CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<ZeroEngine> engine,
                            ZeroEngine::Create(zero, communicator_));
    Result<RankOutcome> outcome = TrainWith(*engine);
    // Before the engine waits for what other ranks would have to end.
    if (!outcome.ok()) communicator_->Abort(outcome.status());
    CASTOR_RETURN_IF_ERROR(outcome.status());
    CASTOR_RETURN_IF_ERROR(engine->Close());
    return outcome;
  }

 private:
  static std::unique_ptr<Lane> MakeLane(const std::string& name,
                                        Device* device) {
    if (device != nullptr) return device->MakeLane(name);
    return std::make_unique<ThreadLane>(name);
  }

  Result<RankOutcome> TrainWith(ZeroEngine& engine) try {
    CASTOR_RETURN_IF_ERROR(MakeBatches());
    CASTOR_RETURN_IF_ERROR(RegisterAndSeal(
        options_.model, options_.dtype, options_.seed, engine,
        options_.decay_matrices_only ? kVectorsGroup : "", options_.grad_mode));
    EngineParams params(options_.model, options_.dtype, options_.grad_mode,
                        &engine, lane_.get(), device_);
    Gpt<float> model(options_.model, options_.batch);
    RankOutcome outcome;
    if (!options_.resume.empty()) {
      CASTOR_RETURN_IF_ERROR(
          engine.Load({.directory = options_.resume}).status());
    } else if (!options_.init.empty()) {
      CASTOR_RETURN_IF_ERROR(engine
                                 .Load({.directory = options_.init,
                                        .optimizer_states = false,
                                        .convert = true})
                                 .status());
    }
    int64_t saved = 0;  // after which step; the first checkpoint is of one made
    bool unfinished = false;  // the last save
    int64_t step = options_.first_step;
    for (; board_->Begin(step); ++step) {
      CASTOR_RETURN_IF_ERROR(Step(engine, params, model, step));
      if (options_.save_every > 0 && step % options_.save_every == 0) {
        if (unfinished) CASTOR_RETURN_IF_ERROR(engine.FinishSave().status());
        CASTOR_ASSIGN_OR_RETURN(outcome.checkpoint, Save(engine));
        saved = step;
        unfinished = options_.save_async;
      }
      if (step == options_.digest_step) {
        CASTOR_ASSIGN_OR_RETURN(outcome.digests[step], engine.WeightDigest());
      }
    }
    const bool save = !options_.save.empty() && saved < step - 1;
    outcome.save_failure = SaveLast(engine, unfinished, save, &outcome);
    // What the engine itself lost is told by the next call.
    if (!outcome.save_failure.ok()) outcome.checkpoint.clear();
    CASTOR_ASSIGN_OR_RETURN(outcome.final_digest, engine.WeightDigest());
    outcome.stats = engine.stats();
    outcome.arena = arena_->stats();
    if (communicator_->rank() == 0) {
      outcome.trace = engine.RecordedTrace();
      outcome.placed_by_rules = engine.PlacedByRules();
    }
    if (options_.recorder != nullptr) {
      options_.recorder->AddArena(
          ArenaInfo(communicator_->rank(), "batches", outcome.arena));
    }
    return outcome;
  } catch (const std::bad_alloc&) {
    return Status(
        Unavailable("there is not enough memory for the activations; use a "
                    "smaller --batch, --seq or model"));
  }

  Result<std::string> Save(ZeroEngine& engine) const {
    CASTOR_ASSIGN_OR_RETURN(
        const SaveResult saved,
        engine.Save({.directory = options_.save,
                     .trainer = WritePosition(PositionOf(options_)),
                     .keep = options_.keep,
                     .wait = !options_.save_async}));
    return saved.path;
  }

  // What is left to save after the last step: what is `unfinished`, and with
  // `save` that step.
  Status SaveLast(ZeroEngine& engine, bool unfinished, bool save,
                  RankOutcome* outcome) const {
    if (unfinished) CASTOR_RETURN_IF_ERROR(engine.FinishSave().status());
    if (!save) return OkStatus();
    CASTOR_ASSIGN_OR_RETURN(outcome->checkpoint, Save(engine));
    return options_.save_async ? engine.FinishSave().status() : OkStatus();
  }

  // Batches lie where a device could fetch them from.
  Status MakeBatches() {
    const Bytes size(static_cast<int64_t>(sizeof(int)) * options_.batch *
                     options_.model.context);
    PinnedArenaOptions arena;
    arena.budget = 2 * RoundUp(size, kPinnedPage);
    arena.log = options_.log;
    CASTOR_ASSIGN_OR_RETURN(arena_, MakeJemallocArena(LinkedJemalloc(), arena));
    CASTOR_ASSIGN_OR_RETURN(tokens_, arena_->Allocate(size));
    CASTOR_ASSIGN_OR_RETURN(targets_, arena_->Allocate(size));
    return OkStatus();
  }

  static std::span<int> IntsOf(const PinnedBuffer& buffer) {
    return {reinterpret_cast<int*>(buffer.data()),
            static_cast<size_t>(buffer.size().count()) / sizeof(int)};
  }

  Status Step(ZeroEngine& engine, EngineParams& params, Gpt<float>& model,
              int64_t step) {
    const int seq = options_.model.context;
    const std::span<int> tokens = IntsOf(tokens_);
    const std::span<int> targets = IntsOf(targets_);
    RankStep result;
    for (int micro = 0; micro < options_.accumulate; ++micro) {
      data_.Sample({options_.seed, step, communicator_->rank(), micro},
                   options_.batch, seq, tokens, targets);
      CASTOR_RETURN_IF_ERROR(
          engine.BeginMicroBatch(/*last=*/micro + 1 == options_.accumulate));
      CASTOR_ASSIGN_OR_RETURN(const double loss,
                              model.Forward(params, tokens, targets));
      CASTOR_RETURN_IF_ERROR(model.Backward(params, engine.LossScale()));
      result.loss += loss / options_.accumulate;
    }
    CASTOR_ASSIGN_OR_RETURN(
        const StepResult stepped,
        engine.Step(LearningRateAt(ScheduleOf(options_), step)));
    result.grad_norm = stepped.grad_norm;
    result.applied = stepped.applied;
    result.loss_scale = stepped.loss_scale;
    const EngineStats stats = engine.stats();
    std::copy(std::begin(stats.tiers), std::end(stats.tiers), result.tiers);
    if (meeting_ != nullptr) return meeting_->Post(step, result, board_);
    board_->Post(communicator_->rank(), step, result);
    return OkStatus();
  }

  const TrainOptions& options_;
  const TextData& data_;
  StepBoard* board_;
  GroupMeeting* meeting_;
  Communicator* communicator_;
  Device* device_;
  const std::unique_ptr<Lane> lane_;
  std::unique_ptr<PinnedArena> arena_;
  PinnedBuffer tokens_;  // of arena_, as targets_
  PinnedBuffer targets_;
};

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
    ranks.owned = MakeInProcessWorld({.world = options.ranks,
                                      .executor = pool,
                                      .timeout_ns = options.rank_timeout_ns});
    for (const auto& each : ranks.owned) ranks.all.push_back(each.get());
    return ranks;
  }
  // A small budget has more use for its bytes.
  constexpr Bytes kMostBuffer = MiB(4);
  const Bytes buffer = options.device_budget > Bytes(0)
                           ? std::min(kMostBuffer, options.device_budget / 32)
                           : kMostBuffer;
  CASTOR_ASSIGN_OR_RETURN(Communicator * one, group->MakeCommunicator(buffer));
  ranks.all.push_back(one);
  return ranks;
}

// Of the ranks on this machine.
Status CheckMemoryOf(const TrainOptions& options, const RankGroup* group) {
  const double share =
      group == nullptr
          ? 1
          : static_cast<double>(group->local_world()) / group->world();
  return CheckMemory(TrainerBytes(options, /*reference=*/false) * share);
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
  UseOneThreadPerCaller();
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
  const ZeroOptions zero = EngineOptions(options, &pool);
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
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ZeroOptions own = zero;
      if (devices.has_value()) {
        own.device = devices->device(rank);
        own.make_nvme_queue = devices->nvme_queue(rank);
      }
      if (hardware != nullptr) own.device = hardware;
      outcomes[rank] =
          RankTrainer(options, data, &board, others, world[rank], hardware)
              .Run(own);
      // A rank that fails before it has an engine ends the world too.
      if (!outcomes[rank].ok()) world[rank]->Abort(outcomes[rank].status());
    });
  }
  for (std::thread& thread : threads) thread.join();
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
  outcome.trace = std::move(outcomes.front()->trace);
  outcome.placed_by_rules = std::move(outcomes.front()->placed_by_rules);
  outcome.digests = outcomes.front()->digests;
  outcome.final_digest = outcomes.front()->final_digest;
  outcome.checkpoint = outcomes.front()->checkpoint;
  outcome.save_failure = outcomes.front()->save_failure;
  outcome.stopped_early = board.stopped_early();
  outcome.steps = board.TakeReports();
  for (const StepReport& step : outcome.steps) outcome.seconds += step.seconds;
  return outcome;
}

}  // namespace castor::gpt
