// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "offload/executor.h"
#include "offload/jemalloc_arena.h"
#include "offload/lane.h"
#include "offload/linked_jemalloc.h"
#include "offload/pinned_arena.h"
#include "placement/run_event.h"
#include "placement/trace_file.h"
#include "tools/examples/gpt/engine_params.h"
#include "tools/examples/gpt/gemm.h"
#include "tools/examples/gpt/model.h"
#include "tools/examples/gpt/rank_devices.h"
#include "tools/examples/gpt/step_board.h"

namespace castor::gpt {
namespace {

ZeroOptions EngineOptions(const TrainOptions& options, Executor* executor) {
  ZeroOptions zero;
  zero.stage = options.stage;
  zero.optimizer = {.lr = options.lr,
                    .beta1 = options.beta1,
                    .beta2 = options.beta2,
                    .eps = options.eps,
                    .weight_decay = options.weight_decay};
  zero.clip_norm = options.clip_norm;
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
  TraceFile trace;  // of rank 0, as is the next
  std::vector<std::string> placed_by_rules;
};

// One rank, on its own thread.
class RankTrainer {
 public:
  RankTrainer(const TrainOptions& options, const TextData& data,
              StepBoard* board, Communicator* communicator)
      : options_(options),
        data_(data),
        board_(board),
        communicator_(communicator),
        lane_(fmt::format("compute {}", communicator->rank())) {}

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
  Result<RankOutcome> TrainWith(ZeroEngine& engine) try {
    CASTOR_RETURN_IF_ERROR(MakeBatches());
    CASTOR_RETURN_IF_ERROR(
        RegisterAndSeal(options_.model, options_.dtype, options_.seed, engine));
    EngineParams params(options_.model, options_.dtype, &engine, &lane_);
    Gpt<float> model(options_.model, options_.batch);
    RankOutcome outcome;
    for (int64_t step = 1; board_->Begin(step); ++step) {
      CASTOR_RETURN_IF_ERROR(Step(engine, params, model, step));
      if (step == options_.digest_step) {
        CASTOR_ASSIGN_OR_RETURN(outcome.digests[step], engine.WeightDigest());
      }
    }
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
      CASTOR_RETURN_IF_ERROR(model.Backward(params));
      result.loss += loss / options_.accumulate;
    }
    CASTOR_ASSIGN_OR_RETURN(const StepResult stepped, engine.Step(options_.lr));
    result.grad_norm = stepped.grad_norm;
    result.applied = stepped.applied;
    const EngineStats stats = engine.stats();
    std::copy(std::begin(stats.tiers), std::end(stats.tiers), result.tiers);
    board_->Post(communicator_->rank(), step, result);
    return OkStatus();
  }

  const TrainOptions& options_;
  const TextData& data_;
  StepBoard* board_;
  Communicator* communicator_;
  ThreadLane lane_;
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

}  // namespace

Result<TrainOutcome> Train(const TrainOptions& options, const TextData& data,
                           const TrainHooks& hooks) {
  CASTOR_RETURN_IF_ERROR(Validate(options));
  CASTOR_RETURN_IF_ERROR(
      CheckMemory(TrainerBytes(options, /*reference=*/false)));
  UseOneThreadPerCaller();
  const SteadyClock clock;
  ThreadPool pool(
      std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  const std::vector<std::unique_ptr<Communicator>> world =
      MakeInProcessWorld({.world = options.ranks, .executor = &pool});
  const ZeroOptions zero = EngineOptions(options, &pool);
  std::optional<RankDevices> devices;
  if (options.machine.has_value()) {
    devices.emplace(*options.machine, options.ranks, zero.device_budget, &pool);
  }
  StepBoard board(options, hooks, &clock);
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
      outcomes[rank] =
          RankTrainer(options, data, &board, world[rank].get()).Run(own);
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
  outcome.trace = std::move(outcomes.front()->trace);
  outcome.placed_by_rules = std::move(outcomes.front()->placed_by_rules);
  outcome.digests = outcomes.front()->digests;
  outcome.final_digest = outcomes.front()->final_digest;
  outcome.stopped_early = board.stopped_early();
  outcome.steps = board.TakeReports();
  for (const StepReport& step : outcome.steps) outcome.seconds += step.seconds;
  return outcome;
}

}  // namespace castor::gpt
