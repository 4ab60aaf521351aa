// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/rank_trainer.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/lr_schedule.h"
#include "offload/memory/jemalloc_arena.h"
#include "offload/memory/linked_jemalloc.h"
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

// What has to be alike on all ranks, besides what engines compare.
std::vector<std::pair<std::string, std::string>> Alike(
    const TrainOptions& options, const TextData& data) {
  std::vector<std::pair<std::string, std::string>> alike = Told(options);
  // Paths may differ where machines do.
  std::erase_if(alike, [](const auto& row) { return row.first == "--text"; });
  const auto add = [&](const char* name, const auto& value) {
    alike.emplace_back(name, fmt::format("{}", value));
  };
  add("--steps", options.steps);
  add("--seed", options.seed);
  add("the text",
      fmt::format("{} bytes, digest {:016x}", data.size(), data.digest()));
  add("--digest-at", options.digest_step.value_or(0));
  add("--stop-on-nan", options.stop_on_nan);
  add("--save", options.save);
  add("--save-every", options.save_every);
  add("--save-async", options.save_async);
  add("--keep", options.keep);
  add("the step that --resume goes on after", options.first_step - 1);
  add("--init", options.init.empty() ? "not given" : "given");
  return alike;
}

struct RunDigests {
  static constexpr size_t kMost = 32;
  uint64_t rows[kMost];
  bool stop;  // before the first step
};

}  // namespace

RankTrainer::RankTrainer(const TrainOptions& options, const TextData& data,
                         const TrainHooks& hooks, const RankPlace& place)
    : options_(options),
      data_(data),
      hooks_(hooks),
      place_(place),
      lane_(MakeLane(fmt::format("compute {}", place.engine->rank()),
                     place.device)) {}

Result<TrainOutcome> RankTrainer::Run(const ZeroOptions& zero) {
  CASTOR_RETURN_IF_ERROR(Agree());
  CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<ZeroEngine> engine,
                          ZeroEngine::Create(zero, place_.engine));
  const Status trained = TrainWith(*engine);
  // Before the engine waits for what other ranks would have to end.
  if (!trained.ok()) place_.engine->Abort(trained);
  CASTOR_RETURN_IF_ERROR(trained);
  const EngineStats stats = engine->stats();
  CASTOR_RETURN_IF_ERROR(engine->Close());
  CASTOR_ASSIGN_OR_RETURN(outcome_.ranks, Exchange(*place_.trainer, stats));
  if (place_.links) {
    CASTOR_ASSIGN_OR_RETURN(outcome_.links,
                            Exchange(*place_.trainer, place_.links()));
  }
  return std::move(outcome_);
}

// InvalidArgument, naming a rank, where ranks were told to train otherwise or
// on other text.
Status RankTrainer::Agree() {
  if (place_.trainer->world() == 1) {
    stop_ = StopAsked();
    return OkStatus();
  }
  const auto alike = Alike(options_, data_);
  CASTOR_CHECK_LE(alike.size(), RunDigests::kMost);
  RunDigests mine = {};
  for (size_t i = 0; i < alike.size(); ++i) {
    const std::string row = alike[i].first + ' ' + alike[i].second;
    mine.rows[i] = XXH3_64bits(row.data(), row.size());
  }
  mine.stop = StopAsked();
  CASTOR_ASSIGN_OR_RETURN(const std::vector<RunDigests> all,
                          Exchange(*place_.trainer, mine));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    stop_ = stop_ || all[rank].stop;
    for (size_t i = 0; i < alike.size(); ++i) {
      if (all[rank].rows[i] == all[0].rows[i]) continue;
      return InvalidArgument(fmt::format(
          "{} differs between rank 0 and rank {} (here, on rank {}, it is {}): "
          "start all ranks alike",
          alike[i].first, rank, place_.trainer->rank(), alike[i].second));
    }
  }
  return OkStatus();
}

Status RankTrainer::TrainWith(ZeroEngine& engine) {
  CASTOR_RETURN_IF_ERROR(MakeBatches());
  CASTOR_RETURN_IF_ERROR(
      RegisterAndSeal(options_.model, options_.dtype, options_.seed, engine,
                      options_.engine.groups.empty() ? "" : kVectorsGroup,
                      options_.engine.grad_mode, options_.accumulate));
  // The tiers are there now. What is left has to hold the rest, or the kernel
  // ends the run without a word.
  CASTOR_RETURN_IF_ERROR(CheckMemory(TrainerBytes(options_) / options_.ranks +
                                     static_cast<double>(kRest.count())));
  EngineParams params(options_.model, options_.dtype, options_.engine.grad_mode,
                      &engine, lane_.get(), place_.device);
  Gpt model(options_.model, options_.batch);
  CASTOR_RETURN_IF_ERROR(LoadInto(engine));
  CASTOR_RETURN_IF_ERROR(Steps(engine, params, model));
  outcome_.save_failure = SaveLast(engine);
  // What the engine itself lost is told by the next call.
  if (!outcome_.save_failure.ok()) outcome_.checkpoint.clear();
  CASTOR_ASSIGN_OR_RETURN(outcome_.final_digest, engine.WeightDigest());
  outcome_.arena = arena_->stats();
  outcome_.memory.activations = model.bytes();
  outcome_.memory.conversions = params.bytes();
  const EngineStats stats = engine.stats();
  // A simulated device is this process's own memory.
  if (place_.device == nullptr) {
    outcome_.memory.tiers += stats.tiers[TierIndex(Tier::kDevice)].peak;
  }
  outcome_.memory.tiers +=
      stats.tiers[TierIndex(Tier::kHost)].peak + outcome_.arena.peak;
  outcome_.trace = engine.RecordedTrace();
  outcome_.placed_by_rules = engine.PlacedByRules();
  if (options_.engine.recorder != nullptr) {
    options_.engine.recorder->AddArena(
        ArenaInfo(place_.engine->rank(), "batches", outcome_.arena));
  }
  return OkStatus();
}

Status RankTrainer::LoadInto(ZeroEngine& engine) const {
  if (!options_.resume.empty()) {
    return engine.Load({.directory = options_.resume}).status();
  }
  if (options_.init.empty()) return OkStatus();
  return engine
      .Load({.directory = options_.init,
             .optimizer_states = false,
             .convert = true})
      .status();
}

Status RankTrainer::Steps(ZeroEngine& engine, EngineParams& params,
                          Gpt& model) {
  const SteadyClock clock;
  int64_t begun_ns = clock.NowNs();
  int64_t step = options_.first_step;
  for (; !stop_ && step <= options_.steps; ++step) {
    CASTOR_ASSIGN_OR_RETURN(StepReport report,
                            Step(engine, params, model, step));
    const int64_t now_ns = clock.NowNs();
    report.seconds = static_cast<double>(now_ns - begun_ns) * 1e-9;
    begun_ns = now_ns;
    CASTOR_RETURN_IF_ERROR(Meet(&report));
    if (hooks_.on_step) hooks_.on_step(report);
    CASTOR_RETURN_IF_ERROR(SaveWhatIsDue(engine, step));
    if (step == options_.digest_step) {
      CASTOR_ASSIGN_OR_RETURN(outcome_.digests[step], engine.WeightDigest());
    }
  }
  outcome_.stopped_early = step <= options_.steps;
  return OkStatus();
}

Result<StepReport> RankTrainer::Step(ZeroEngine& engine, EngineParams& params,
                                     Gpt& model, int64_t step) {
  const int seq = options_.model.context;
  const std::span<int> tokens = IntsOf(tokens_);
  const std::span<int> targets = IntsOf(targets_);
  StepReport report;
  report.step = step;
  for (int micro = 0; micro < options_.accumulate; ++micro) {
    data_.Sample({options_.seed, step, place_.engine->rank(), micro},
                 options_.batch, seq, tokens, targets);
    CASTOR_RETURN_IF_ERROR(
        engine.BeginMicroBatch(/*last=*/micro + 1 == options_.accumulate));
    CASTOR_ASSIGN_OR_RETURN(const double loss,
                            model.Forward(params, tokens, targets));
    CASTOR_RETURN_IF_ERROR(model.Backward(params, engine.LossScale()));
    report.loss += loss / options_.accumulate;
  }
  CASTOR_ASSIGN_OR_RETURN(
      const StepResult stepped,
      engine.Step(LearningRateAt(ScheduleOf(options_), step)));
  report.grad_norm = stepped.grad_norm;
  report.applied = stepped.applied;
  report.loss_scale = stepped.loss_scale;
  report.tokens =
      int64_t{options_.ranks} * options_.accumulate * options_.batch * seq;
  const EngineStats stats = engine.stats();
  std::copy(std::begin(stats.tiers), std::end(stats.tiers), report.tiers);
  return report;
}

Status RankTrainer::Meet(StepReport* report) {
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

Status RankTrainer::SaveWhatIsDue(ZeroEngine& engine, int64_t step) {
  if (options_.save_every == 0 || step % options_.save_every != 0 ||
      !MaySave()) {
    return OkStatus();
  }
  if (unfinished_) CASTOR_RETURN_IF_ERROR(engine.FinishSave().status());
  CASTOR_ASSIGN_OR_RETURN(outcome_.checkpoint, Save(engine));
  saved_ = step;
  unfinished_ = options_.save_async;
  return OkStatus();
}

Status RankTrainer::SaveLast(ZeroEngine& engine) {
  if (unfinished_) CASTOR_RETURN_IF_ERROR(engine.FinishSave().status());
  const int64_t last =
      options_.first_step - 1 + static_cast<int64_t>(outcome_.steps.size());
  if (options_.save.empty() || saved_ >= last || !MaySave()) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(outcome_.checkpoint, Save(engine));
  return options_.save_async ? engine.FinishSave().status() : OkStatus();
}

Result<std::string> RankTrainer::Save(ZeroEngine& engine) const {
  CASTOR_ASSIGN_OR_RETURN(const SaveResult saved,
                          engine.Save({.directory = options_.save,
                                       .trainer = WriteTold(options_),
                                       .keep = options_.keep,
                                       .wait = !options_.save_async}));
  return saved.path;
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

}  // namespace castor::gpt
