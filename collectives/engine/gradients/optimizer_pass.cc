// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/optimizer_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "chunk/base/stable_sort.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/optimizer.h"
#include "placement/trace.h"
#include "placement/trace/use_order.h"

namespace castor::internal {

Status OptimizerPass::SetUpdate(UpdateFunction update) {
  if (model_.options.optimizer.kind != OptimizerKind::kCustom) {
    return FailedPrecondition(fmt::format(
        "the optimizer is {}, which needs no update from outside: give the "
        "options the kind custom",
        OptimizerName(model_.options.optimizer.kind)));
  }
  if (progress_.micro_batches > 0) {
    return FailedPrecondition(
        "a step is half done: call Step() or Abandon() before SetUpdate()");
  }
  program_update_ = std::make_shared<ProgramUpdate>(std::move(update));
  return OkStatus();
}

Status OptimizerPass::RequireUpdate() const {
  if (model_.options.optimizer.kind != OptimizerKind::kCustom ||
      program_update_ != nullptr) [[likely]] {
    return OkStatus();
  }
  return FailedPrecondition(
      "the optimizer is a custom one and nobody gave its update: call "
      "SetUpdate() before the first step");
}

UpdateWork OptimizerPass::MakeWork(ChunkId chunk, ShardRange range,
                                   float factor, double lr,
                                   int64_t ahead) const {
  UpdateWork work;
  work.factor = factor;
  work.dtype = model_.layout->dtype(chunk);
  work.grad_dtype = model_.GradDType(chunk);
  work.elements = (range.end - range.begin).count();
  work.moment_dtype = model_.dtype(OptimizerState(0), chunk);
  work.program = program_update_;
  for (const Segment& segment : model_.Segments(chunk, range)) {
    const EngineParam& param = model_.param(segment.param);
    const int64_t step = scalars_.updates[segment.param.index()] + ahead;
    UpdateWork::Piece piece;
    piece.segment = segment;
    piece.update = progress_.params[segment.param.index()].used;
    if (std::byte* const borrowed =
            progress_.params[segment.param.index()].borrowed) {
      piece.grad =
          borrowed + BytesOf(Elements(segment.begin), work.grad_dtype).count();
    }
    piece.cuts = !param.spec.whole;
    piece.step = step;
    if (program_update_ != nullptr) {
      piece.lr = scalars_.groups.RateOf(param.group, lr);
    } else if (piece.update) {
      const OptimizerOptions optimizer =
          scalars_.groups.OptionsOf(param.group, lr);
      piece.scalars = ComputeOptimizerScalars(optimizer, step);
      piece.rounding = MakeMomentRounding(optimizer, segment.param.index(),
                                          step, segment.begin);
    }
    work.pieces.push_back(piece);
  }
  return work;
}

Event OptimizerPass::Update(ChunkId chunk, float factor, double lr,
                            const PassingGrad* passing) {
  HomePass pass = PassOf(chunk, factor, lr, passing, 0);
  // At Step all gradients are on their way.
  if (!early_.updated(chunk)) pass.place = PickPlace::kHolds;
  return passes_.Run(std::move(pass));
}

HomePass OptimizerPass::PassOf(ChunkId chunk, float factor, double lr,
                               const PassingGrad* passing, int64_t ahead) {
  HomePass pass;
  pass.chunk = chunk;
  pass.range = model_.updated(chunk);
  pass.cause = RunCause::kOptimizer;
  pass.kind = HostPass::kUpdate;
  pass.passing = passing;
  // A program's calls come in one order.
  if (program_update_ == nullptr) pass.next_use = NextUse(chunk, passing);
  const auto use = [&](StateKind state, WindowMode mode) {
    if (memory_.store().has(chunk, state)) pass.uses.push_back({state, mode});
  };
  if (passing == nullptr) use(StateKind::kGrad, WindowMode::kRead);
  use(StateKind::kParam, memory_.store().has(chunk, StateKind::kMaster)
                             ? WindowMode::kWrite
                             : WindowMode::kReadWrite);
  use(StateKind::kMaster, WindowMode::kReadWrite);
  for (int i = 0; i < kMaxOptimizerStates; ++i) {
    use(OptimizerState(i), WindowMode::kReadWrite);
  }
  pass.on_device = [this, chunk, factor, lr, ahead,
                    range = pass.range](const StateBytes& at) {
    UpdateWork work = MakeWork(chunk, range, factor, lr, ahead);
    work.Place(at);
    work.Queue(memory_.device(), memory_.device_lane(),
               memory_.loses_home(chunk));
  };
  pass.on_host = [this, chunk, factor, lr, ahead](ShardRange part) {
    return HomePass::HostWork{
        UpdateBytes(model_.sharding.update_pass(model_.GroupOf(chunk)),
                    part.end - part.begin),
        [work = MakeWork(chunk, part, factor, lr, ahead),
         workers = &model_.workers()](const StateBytes& at) mutable {
          work.Place(at);
          work.Run(*workers, at.begun);
        }};
  };
  return pass;
}

int64_t OptimizerPass::NextUse(ChunkId chunk, const PassingGrad* passing) {
  // Behind all of the steps before, for which forwards of theirs wait.
  const int64_t first =
      progress_.steps * (static_cast<int64_t>(model_.chunks()) + 1);
  // What is passing takes memory from the gradients behind it.
  if (passing != nullptr) return first;
  if (next_use_.empty()) {
    // As the next forward comes to them. By number where ranks refresh copies,
    // which all call in one order.
    next_use_.resize(model_.chunks());
    const std::vector<ChunkId> order = OrderOfFirstUses(
        model_.sharding.refreshes() ? Trace() : memory_.planned_trace(),
        model_.chunks());
    for (size_t i = 0; i < order.size(); ++i) {
      next_use_[order[i].index()] = static_cast<int64_t>(i);
    }
  }
  return first + 1 + next_use_[chunk.index()];
}

double OptimizerPass::AveragingFactor() const {
  const int64_t micro_batches =
      model_.options.average_micro_batches ? progress_.micro_batches : 1;
  return std::ldexp(
      1.0 / (static_cast<double>(model_.comm->world()) *
             static_cast<double>(micro_batches) * scalars_.scaler.scale()),
      model_.headroom);
}

Status OptimizerPass::UpdateAll(const std::vector<ChunkId>& with_gradient,
                                float factor, double lr, StepUpdates* made) {
  for (size_t p = 0; p < scalars_.updates.size(); ++p) {
    const ChunkId chunk = model_.layout->places()[p].chunk;
    const bool early = chunk.valid() && early_.updated(chunk);
    scalars_.updates[p] += progress_.params[p].used && !early;
  }
  next_use_.clear();  // the step that has ended may be planned only now
  std::vector<ChunkId> order = with_gradient;
  StableSort(&order, [&](ChunkId a, ChunkId b) {
    return NextUse(a, nullptr) < NextUse(b, nullptr);
  });
  for (const ChunkId chunk : order) {
    if (!early_.updated(chunk) && !guesses_.Settle(chunk, factor, lr)) {
      Update(chunk, factor, lr);
    }
    if (model_.sharding.refreshes()) gathers_.Refresh(chunk);
  }
  updates_before_ = memory_.store().WorkUnderWay();
  made->skipped = FinishProgramUpdate();
  CASTOR_RETURN_IF_ERROR(health_.status());
  std::vector<Event> written;
  for (const ChunkId chunk : with_gradient) {
    if (!gathers_.held_at_home(chunk)) continue;
    written.push_back(memory_.store().written(chunk, StateKind::kParam));
  }
  made->written = AllOf(written);
  return OkStatus();
}

void OptimizerPass::EndStep() {
  guesses_.EndStep();
  early_.EndStep();
  next_use_.clear();  // the next step's may be another
}

bool OptimizerPass::AllUsed(ChunkId chunk) const {
  const std::vector<ParamId>& params = model_.layout->chunk(chunk).params;
  return std::all_of(params.begin(), params.end(), [&](ParamId id) {
    return progress_.params[id.index()].used;
  });
}

bool OptimizerPass::MayUpdateNow(ChunkId chunk) const {
  // A lease of the home itself is read until its end.
  return !gathers_.held_at_home(chunk) && AllUsed(chunk);
}

Event OptimizerPass::GuessNow(ChunkId chunk, const PassingGrad* passing) {
  const std::optional<double> lr = guesses_.rate();
  // Another rank's part of a home would be old in a spare place.
  const auto whole = [&](const HomePass::Use& use) {
    const ShardRange kept = model_.kept(use.state, chunk);
    const ShardRange updated = model_.updated(chunk);
    return use.mode == WindowMode::kRead ||
           memory_.store().home(chunk, use.state) == Tier::kDevice ||
           (kept.begin == updated.begin && kept.end == updated.end);
  };
  if (!lr || early_.allowed() || guesses_.holds(chunk) || !AllUsed(chunk)) {
    return Event();
  }
  // What goes to the drive need not come back, unless the gradient would stay
  // on the device until other work is done.
  if (memory_.store().home(chunk, StateKind::kGrad) != Tier::kNvme ||
      memory_.store().WorkWaits()) {
    passing = nullptr;
  }
  const auto factor = static_cast<float>(AveragingFactor());
  HomePass pass = PassOf(chunk, factor, *lr, passing, /*ahead=*/1);
  pass.aside = true;
  pass.cause = RunCause::kGuess;
  if (!pass.next_use ||
      !std::all_of(pass.uses.begin(), pass.uses.end(), whole) ||
      !guesses_.TakePlaces(chunk, pass.uses)) {
    return Event();
  }
  if (!passes_.RunsAside(pass)) {
    guesses_.GivePlaces(chunk);
    return Event();
  }
  pass.dropped = guesses_.Begin(chunk, factor, *lr);
  return passes_.Run(std::move(pass));
}

void OptimizerPass::Abandon() {
  early_.Abandon();
  guesses_.Abandon();
}

Event OptimizerPass::UpdateNow(ChunkId chunk, const PassingGrad* passing) {
  for (ParamId id : model_.layout->chunk(chunk).params) {
    ++scalars_.updates[id.index()];
  }
  early_.Note(chunk);
  return Update(chunk, static_cast<float>(AveragingFactor()), early_.rate(),
                passing);
}

// Waits for the program's calls. Where the first of them failed before anything
// was changed, and no other rank changes anything, the step counts as skipped.
Status OptimizerPass::FinishProgramUpdate() {
  if (program_update_ == nullptr) return OkStatus();
  const Event done[] = {lanes_.host->Record(), memory_.device_lane().Record()};
  CASTOR_RETURN_IF_ERROR(AllOf(done).Wait());
  bool wrote = false;
  const Status outcome = program_update_->TakeOutcome(&wrote);
  if (outcome.ok()) return outcome;
  if (wrote || early_.any() || model_.comm->world() > 1) {
    return health_.Fail(Aborted(fmt::format(
        "the optimizer's update failed in the middle of a step, so that some "
        "parameters are updated and others are not; load a checkpoint into a "
        "new engine: {}",
        outcome.message())));
  }
  for (size_t p = 0; p < scalars_.updates.size(); ++p) {
    scalars_.updates[p] -= progress_.params[p].used;
  }
  return outcome.WithContext(
      "the optimizer's update failed before it changed anything, and this "
      "step's gradients are dropped");
}

void OptimizerPass::RestoreHome(ChunkId chunk) {
  const DType dtype = model_.layout->dtype(chunk);
  HomePass pass;
  pass.chunk = chunk;
  pass.range = model_.updated(chunk);
  pass.cause = RunCause::kOptimizer;
  pass.uses = {{StateKind::kMaster, WindowMode::kRead},
               {StateKind::kParam, WindowMode::kWrite}};
  pass.on_device = [&, range = pass.range](const StateBytes& at) {
    memory_.device().Convert(memory_.device_lane(), at.of(StateKind::kMaster),
                             DType::kF32, at.of(StateKind::kParam), dtype,
                             range.end - range.begin);
  };
  pass.on_host = [&](ShardRange part) {
    return HomePass::HostWork{
        model_.RangeBytes(chunk, StateKind::kMaster, part).size() +
            model_.RangeBytes(chunk, StateKind::kParam, part).size(),
        [dtype, part](const StateBytes& at) {
          ConvertFromFloat(
              reinterpret_cast<const float*>(at.of(StateKind::kMaster)),
              (part.end - part.begin).count(), dtype, at.of(StateKind::kParam));
        }};
  };
  passes_.Run(std::move(pass));
  if (model_.sharding.refreshes()) gathers_.Refresh(chunk);
}

}  // namespace castor::internal
