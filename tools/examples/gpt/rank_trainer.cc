// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/rank_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/lr_schedule.h"
#include "collectives/zero_engine.h"
#include "offload/lane.h"
#include "offload/memory/jemalloc_arena.h"
#include "offload/memory/linked_jemalloc.h"
#include "offload/memory/pinned_arena.h"
#include "placement/run_event.h"
#include "tools/examples/gpt/engine_params.h"
#include "tools/examples/gpt/model/model.h"
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

class RankTrainer {
 public:
  RankTrainer(const TrainOptions& options, const TextData& data,
              const TrainHooks& hooks, const RankPlace& place)
      : options_(options),
        data_(data),
        hooks_(hooks),
        place_(place),
        lane_(MakeLane(fmt::format("compute {}", place.engine->rank()),
                       place.device)) {}

  Result<TrainOutcome> Run(const ZeroOptions& zero) {
    CASTOR_RETURN_IF_ERROR(CheckToldAlike(*place_.trainer, options_, data_));
    CASTOR_ASSIGN_OR_RETURN(
        const std::vector<int> stops,
        Exchange(*place_.trainer, static_cast<int>(StopAsked())));
    stop_ = std::ranges::count(stops, 0) < std::ssize(stops);
    CASTOR_ASSIGN_OR_RETURN(engine_, ZeroEngine::Create(zero, place_.engine));
    const Status trained = Train();
    // Before the engine waits for what other ranks would have to end.
    if (!trained.ok()) place_.engine->Abort(trained);
    CASTOR_RETURN_IF_ERROR(trained);
    const EngineStats stats = engine_->stats();
    CASTOR_RETURN_IF_ERROR(engine_->Close());
    CASTOR_ASSIGN_OR_RETURN(outcome_.ranks, Exchange(*place_.trainer, stats));
    if (place_.links) {
      CASTOR_ASSIGN_OR_RETURN(outcome_.links,
                              Exchange(*place_.trainer, place_.links()));
    }
    return std::move(outcome_);
  }

 private:
  bool StopAsked() const { return hooks_.stop != nullptr && *hooks_.stop; }

  Status Train() {
    CASTOR_RETURN_IF_ERROR(MakeBatches());
    CASTOR_RETURN_IF_ERROR(
        RegisterAndSeal(options_.model, options_.dtype, options_.seed, *engine_,
                        options_.engine.groups.empty() ? "" : kVectorsGroup,
                        options_.engine.grad_mode, options_.accumulate));
    // The tiers are there now. What is left has to hold the rest, or the kernel
    // ends the run without a word.
    CASTOR_RETURN_IF_ERROR(CheckMemory(TrainerBytes(options_) / options_.ranks +
                                       static_cast<double>(kRest.count())));
    EngineParams params(options_.model, options_.dtype,
                        options_.engine.grad_mode, engine_.get(), lane_.get(),
                        place_.device);
    Gpt model(options_.model, options_.batch);
    CASTOR_RETURN_IF_ERROR(LoadWeights());
    CASTOR_RETURN_IF_ERROR(MakeSteps(params, model));
    outcome_.save_failure = SaveLast();
    // What the engine itself lost is told by the next call.
    if (!outcome_.save_failure.ok()) outcome_.checkpoint.clear();
    CASTOR_ASSIGN_OR_RETURN(outcome_.final_digest, engine_->WeightDigest());
    outcome_.arena = arena_->stats();
    outcome_.memory.activations = model.bytes();
    outcome_.memory.conversions = params.bytes();
    const EngineStats stats = engine_->stats();
    // A simulated device is this process's own memory.
    if (place_.device == nullptr) {
      outcome_.memory.tiers += stats.tiers[TierIndex(Tier::kDevice)].peak;
    }
    outcome_.memory.tiers +=
        stats.tiers[TierIndex(Tier::kHost)].peak + outcome_.arena.peak;
    outcome_.trace = engine_->RecordedTrace();
    outcome_.placed_by_rules = engine_->PlacedByRules();
    if (options_.engine.recorder != nullptr) {
      options_.engine.recorder->AddArena(
          ArenaInfo(place_.engine->rank(), "batches", outcome_.arena));
    }
    return OkStatus();
  }

  // Batches lie where a device could fetch them from.
  Status MakeBatches() {
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

  Status LoadWeights() {
    if (!options_.resume.empty()) {
      return engine_->Load({.directory = options_.resume}).status();
    }
    if (options_.init.empty()) return OkStatus();
    return engine_
        ->Load({.directory = options_.init,
                .optimizer_states = false,
                .steps_anew = true,
                .convert = true})
        .status();
  }

  Status MakeSteps(EngineParams& params, Gpt& model) {
    const SteadyClock clock;
    int64_t begun_ns = clock.NowNs();
    int64_t step = options_.first_step;
    for (; !stop_ && step <= options_.steps; ++step) {
      CASTOR_ASSIGN_OR_RETURN(StepReport report, Step(params, model, step));
      const int64_t now_ns = clock.NowNs();
      report.seconds = static_cast<double>(now_ns - begun_ns) * 1e-9;
      begun_ns = now_ns;
      CASTOR_RETURN_IF_ERROR(Meet(&report));
      if (hooks_.on_step) hooks_.on_step(report);
      if (options_.save_every > 0 && step % options_.save_every == 0) {
        CASTOR_RETURN_IF_ERROR(Save(step));
      }
      if (step == options_.digest_step) {
        CASTOR_ASSIGN_OR_RETURN(outcome_.digests[step],
                                engine_->WeightDigest());
      }
    }
    outcome_.last_step = step - 1;
    outcome_.stopped_early = step <= options_.steps;
    return OkStatus();
  }

  Result<StepReport> Step(EngineParams& params, Gpt& model, int64_t step) {
    const int seq = options_.model.context;
    const std::span<int> tokens = IntsOf(tokens_);
    const std::span<int> targets = IntsOf(targets_);
    StepReport report;
    report.step = step;
    for (int micro = 0; micro < options_.accumulate; ++micro) {
      data_.Sample({options_.seed, step, place_.engine->rank(), micro},
                   options_.batch, seq, tokens, targets);
      CASTOR_RETURN_IF_ERROR(
          engine_->BeginMicroBatch(/*last=*/micro + 1 == options_.accumulate));
      CASTOR_ASSIGN_OR_RETURN(const double loss,
                              model.Forward(params, tokens, targets));
      CASTOR_RETURN_IF_ERROR(model.Backward(params, engine_->LossScale()));
      report.loss += loss / options_.accumulate;
    }
    CASTOR_ASSIGN_OR_RETURN(
        const StepResult stepped,
        engine_->Step(LearningRateAt(ScheduleOf(options_), step)));
    report.grad_norm = stepped.grad_norm;
    report.applied = stepped.applied;
    report.loss_scale = stepped.loss_scale;
    report.tokens =
        int64_t{options_.ranks} * options_.accumulate * options_.batch * seq;
    const EngineStats stats = engine_->stats();
    std::copy(std::begin(stats.tiers), std::end(stats.tiers), report.tiers);
    return report;
  }

  // Tells the others what `report` says of this rank, and takes in what they
  // say.
  Status Meet(StepReport* report) {
    struct Said {
      double loss;
      bool stop;
    };
    CASTOR_ASSIGN_OR_RETURN(
        const std::vector<Said> all,
        Exchange(*place_.trainer, Said{report->loss, StopAsked()}));
    report->loss = 0;
    for (const Said& each : all) {
      report->loss += each.loss;
      stop_ = stop_ || each.stop;
    }
    report->loss /= options_.ranks;
    outcome_.steps_without_loss =
        std::isfinite(report->loss) ? 0 : outcome_.steps_without_loss + 1;
    stop_ = stop_ || (options_.stop_on_nan > 0 &&
                      outcome_.steps_without_loss >= options_.stop_on_nan);
    outcome_.steps.push_back(*report);
    return OkStatus();
  }

  Status Save(int64_t step) {
    // Not where the loss was not finite, unless options let that pass.
    if (options_.stop_on_nan > 0 && outcome_.steps_without_loss > 0) {
      return OkStatus();
    }
    CASTOR_RETURN_IF_ERROR(FinishSave());
    CASTOR_ASSIGN_OR_RETURN(const SaveResult saved,
                            engine_->Save({.directory = options_.save,
                                           .trainer = WriteTold(options_),
                                           .keep = options_.keep,
                                           .wait = !options_.save_async}));
    outcome_.checkpoint = saved.path;
    saved_ = step;
    unfinished_ = options_.save_async;
    return OkStatus();
  }

  Status FinishSave() {
    if (!std::exchange(unfinished_, false)) return OkStatus();
    return engine_->FinishSave().status();
  }

  Status SaveLast() {
    CASTOR_RETURN_IF_ERROR(FinishSave());
    if (options_.save.empty() || saved_ >= outcome_.last_step) {
      return OkStatus();
    }
    CASTOR_RETURN_IF_ERROR(Save(outcome_.last_step));
    return FinishSave();
  }

  const TrainOptions& options_;
  const TextData& data_;
  const TrainHooks& hooks_;
  const RankPlace& place_;
  const std::unique_ptr<Lane> lane_;
  std::unique_ptr<PinnedArena> arena_;
  PinnedBuffer tokens_;  // of arena_, as targets_
  PinnedBuffer targets_;
  std::unique_ptr<ZeroEngine> engine_;
  TrainOutcome outcome_;
  bool stop_ = false;        // said by any rank
  int64_t saved_ = 0;        // after which step
  bool unfinished_ = false;  // the last save
};

}  // namespace

Result<TrainOutcome> TrainRank(const TrainOptions& options,
                               const TextData& data, const TrainHooks& hooks,
                               const RankPlace& place,
                               const ZeroOptions& zero) {
  return RankTrainer(options, data, hooks, place).Run(zero);
}

}  // namespace castor::gpt
