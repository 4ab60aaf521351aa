// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/rank_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/lr_schedule.h"
#include "offload/jemalloc_arena.h"
#include "offload/linked_jemalloc.h"
#include "placement/run_event.h"
#include "tools/examples/gpt/resume.h"

namespace castor::gpt {
namespace {

// Of a rank: BLAS's buffers, stacks, and what a step's report takes. Measured
// in a memory cgroup: 5 MiB.
constexpr Bytes kRest = MiB(6);

std::unique_ptr<Lane> MakeLane(const std::string& name, Device* device) {
  if (device != nullptr) return device->MakeLane(name);
  return std::make_unique<ThreadLane>(name);
}

std::span<int> IntsOf(const PinnedBuffer& buffer) {
  return {reinterpret_cast<int*>(buffer.data()),
          static_cast<size_t>(buffer.size().count()) / sizeof(int)};
}

}  // namespace

RankTrainer::RankTrainer(const TrainOptions& options, const TextData& data,
                         StepBoard* board, GroupMeeting* meeting,
                         Communicator* communicator, Device* device)
    : options_(options),
      data_(data),
      board_(board),
      meeting_(meeting),
      communicator_(communicator),
      device_(device),
      lane_(MakeLane(fmt::format("compute {}", communicator->rank()), device)) {
}

Result<RankOutcome> RankTrainer::Run(const ZeroOptions& zero) {
  CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<ZeroEngine> engine,
                          ZeroEngine::Create(zero, communicator_));
  Result<RankOutcome> outcome = TrainWith(*engine);
  // Before the engine waits for what other ranks would have to end.
  if (!outcome.ok()) communicator_->Abort(outcome.status());
  CASTOR_RETURN_IF_ERROR(outcome.status());
  CASTOR_RETURN_IF_ERROR(engine->Close());
  return outcome;
}

Result<RankOutcome> RankTrainer::TrainWith(ZeroEngine& engine) {
  CASTOR_RETURN_IF_ERROR(MakeBatches());
  CASTOR_RETURN_IF_ERROR(
      RegisterAndSeal(options_.model, options_.dtype, options_.seed, engine,
                      options_.engine.groups.empty() ? "" : kVectorsGroup,
                      options_.engine.grad_mode, options_.accumulate));
  // The tiers are there now. What is left has to hold the rest, or the kernel
  // ends the run without a word.
  CASTOR_RETURN_IF_ERROR(
      CheckMemory(TrainerBytes(options_, /*reference=*/false) / options_.ranks +
                  static_cast<double>(kRest.count())));
  EngineParams params(options_.model, options_.dtype, options_.engine.grad_mode,
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
    if (options_.save_every > 0 && step % options_.save_every == 0 &&
        board_->MaySave(step)) {
      if (unfinished) CASTOR_RETURN_IF_ERROR(engine.FinishSave().status());
      CASTOR_ASSIGN_OR_RETURN(outcome.checkpoint, Save(engine));
      saved = step;
      unfinished = options_.save_async;
    }
    if (step == options_.digest_step) {
      CASTOR_ASSIGN_OR_RETURN(outcome.digests[step], engine.WeightDigest());
    }
  }
  const bool save =
      !options_.save.empty() && saved < step - 1 && board_->MaySave(step - 1);
  outcome.save_failure = SaveLast(engine, unfinished, save, &outcome);
  // What the engine itself lost is told by the next call.
  if (!outcome.save_failure.ok()) outcome.checkpoint.clear();
  CASTOR_ASSIGN_OR_RETURN(outcome.final_digest, engine.WeightDigest());
  outcome.stats = engine.stats();
  outcome.activations = model.bytes();
  outcome.conversions = params.bytes();
  outcome.arena = arena_->stats();
  if (communicator_->rank() == 0) {
    outcome.trace = engine.RecordedTrace();
    outcome.placed_by_rules = engine.PlacedByRules();
  }
  if (options_.engine.recorder != nullptr) {
    options_.engine.recorder->AddArena(
        ArenaInfo(communicator_->rank(), "batches", outcome.arena));
  }
  return outcome;
}

Result<std::string> RankTrainer::Save(ZeroEngine& engine) const {
  CASTOR_ASSIGN_OR_RETURN(
      const SaveResult saved,
      engine.Save({.directory = options_.save,
                   .trainer = WritePosition(PositionOf(options_)),
                   .keep = options_.keep,
                   .wait = !options_.save_async}));
  return saved.path;
}

Status RankTrainer::SaveLast(ZeroEngine& engine, bool unfinished, bool save,
                             RankOutcome* outcome) const {
  if (unfinished) CASTOR_RETURN_IF_ERROR(engine.FinishSave().status());
  if (!save) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(outcome->checkpoint, Save(engine));
  return options_.save_async ? engine.FinishSave().status() : OkStatus();
}

Status RankTrainer::MakeBatches() {
  const Bytes size(static_cast<int64_t>(sizeof(int)) * options_.batch *
                   options_.model.context);
  PinnedArenaOptions arena;
  arena.budget = 2 * RoundUp(size, kPinnedPage);
  arena.log = options_.engine.log;
  CASTOR_ASSIGN_OR_RETURN(arena_, MakeJemallocArena(LinkedJemalloc(), arena));
  CASTOR_ASSIGN_OR_RETURN(tokens_, arena_->Allocate(size));
  CASTOR_ASSIGN_OR_RETURN(targets_, arena_->Allocate(size));
  return OkStatus();
}

Status RankTrainer::Step(ZeroEngine& engine, EngineParams& params,
                         Gpt<float>& model, int64_t step) {
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

}  // namespace castor::gpt
