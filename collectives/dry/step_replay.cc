// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/dry/step_replay.h"

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/stable_sort.h"
#include "chunk/chunk_layout.h"
#include "placement/trace/micro_batches.h"

namespace castor {
namespace {

// No byte is there, so no update depends on it.
constexpr double kLearningRate = 1e-3;

}  // namespace

StepReplay::StepReplay(ZeroEngine* engine, std::span<const ParamSpec> params,
                       Lane* lane, const StepReplayOptions& options)
    : engine_(engine),
      params_(params),
      lane_(lane),
      options_(options),
      gradients_(engine->layout().chunks().size()),
      uses_(gradients_.size()) {}

void StepReplay::FindMissing() {
  const ChunkLayout& layout = engine_->layout();
  lacks_ = ChunksMissingGrads(*step_, gradients_.size());
  missing_.assign(params_.size(), false);
  for (const MissingGrad& grad : step_->missing_grads) {
    const std::vector<ParamId>& ids = layout.chunk(grad.chunk).params;
    const auto named = std::find_if(ids.begin(), ids.end(), [&](ParamId id) {
      return params_[id.index()].name == grad.param;
    });
    // One without a name is as good as another: the last that has one yet.
    const auto any = std::find_if(ids.rbegin(), ids.rend(), [&](ParamId id) {
      return !missing_[id.index()];
    });
    if (named != ids.end()) {
      missing_[named->index()] = true;
    } else if (any != ids.rend()) {
      missing_[any->index()] = true;
    }
  }
}

Status StepReplay::MakeAccesses(const StepTrace& step) {
  step_ = &step;
  const Trace& trace = step.accesses;
  FindMissing();
  own_ends_ = step.lease_ends;
  StableSort(&own_ends_, [](const LeaseEnd& a, const LeaseEnd& b) {
    return a.before < b.before;
  });
  ended_ = 0;
  ends_itself_.assign(trace.size(), false);
  for (const LeaseEnd& end : own_ends_) {
    ends_itself_[static_cast<size_t>(end.use)] = true;
  }
  const std::vector<size_t> begins = options_.grads_in_place
                                         ? std::vector<size_t>{0}
                                         : MicroBatchBegins(trace, lacks_);
  auto begin = begins.begin();
  auto pass = step.evaluations.begin();
  auto waiting = step.waiting.begin();
  const auto evaluate = [&](size_t moment) -> Status {
    for (; pass != step.evaluations.end() &&
           static_cast<size_t>(pass->moment) <= moment;
         ++pass) {
      CASTOR_RETURN_IF_ERROR(Evaluate(*pass));
    }
    return OkStatus();
  };
  for (size_t i = 0; i < trace.size(); ++i) {
    CASTOR_RETURN_IF_ERROR(evaluate(i));
    if (begin != begins.end() && *begin == i) {
      CASTOR_RETURN_IF_ERROR(BeginMicroBatch(++begin == begins.end()));
    }
    EndLeases(i);
    CASTOR_RETURN_IF_ERROR(Serve(i));
    if (!step.compute_ns.empty()) Compute(step.compute_ns[i]);
    if (options_.after_access != nullptr) options_.after_access->RunAll();
    for (; waiting != step.waiting.end() &&
           static_cast<size_t>(waiting->moment) == i;
         ++waiting) {
      CASTOR_RETURN_IF_ERROR(HandBack(waiting->chunk));
    }
  }
  CASTOR_RETURN_IF_ERROR(evaluate(trace.size()));
  EndLeases(trace.size());
  std::fill(gradients_.begin(), gradients_.end(), Gradient::kNone);
  return OkStatus();
}

Status StepReplay::BeginMicroBatch(bool last) {
  // What is still open is reduced by this.
  std::fill(gradients_.begin(), gradients_.end(), Gradient::kNone);
  flushing_ = false;
  CASTOR_RETURN_IF_ERROR(engine_->BeginMicroBatch(last));
  if (!last) return OkStatus();
  if (step_->updates_early) return engine_->UpdateEarly(kLearningRate);
  return options_.guesses ? engine_->GuessUpdates(kLearningRate) : OkStatus();
}

bool StepReplay::UseOfGrad(const Trace& trace, size_t moment) const {
  const auto [kind, chunk] = trace[moment];
  if (!options_.grads_in_place || moment + 1 == trace.size()) return false;
  const Access& next = trace[moment + 1];
  return next.chunk == chunk &&
         ((kind == AccessKind::kUse && next.kind == AccessKind::kGradOpen) ||
          (kind == AccessKind::kUseEnd && next.kind == AccessKind::kGradClose));
}

bool StepReplay::OpensZeros(size_t moment) const {
  if (!options_.takes_turns || step_->compute_ns.empty()) return false;
  const Trace& trace = step_->accesses;
  const ChunkId chunk = trace[moment].chunk;
  const AccessKind end =
      options_.grads_in_place ? AccessKind::kUseEnd : AccessKind::kGradClose;
  return moment + 1 < trace.size() && trace[moment + 1] == Access{end, chunk} &&
         step_->compute_ns[moment] == 0;
}

Status StepReplay::Serve(size_t moment) {
  const Trace& trace = step_->accesses;
  const auto [kind, chunk] = trace[moment];
  switch (kind) {
    case AccessKind::kUse: {
      if (UseOfGrad(trace, moment)) return OkStatus();
      CASTOR_ASSIGN_OR_RETURN(ParamLease lease, Hold(chunk));
      uses_[chunk.index()].push_back({moment, std::move(lease)});
      return OkStatus();
    }
    case AccessKind::kUseEnd: {
      if (UseOfGrad(trace, moment)) return CloseGrad(chunk);
      std::deque<Use>& uses = uses_[chunk.index()];
      CASTOR_CHECK(!uses.empty());
      if (ends_itself_[uses.front().begin]) {
        outlasting_.push_back(std::move(uses.front()));
      }
      uses.pop_front();  // which ends a lease that is still there
      return OkStatus();
    }
    case AccessKind::kGradOpen:
      return OpensZeros(moment) ? OkStatus() : OpenGrad(chunk);
    case AccessKind::kGradClose:
      return CloseGrad(chunk);
  }
  return OkStatus();
}

Result<ParamLease> StepReplay::Hold(ChunkId chunk) {
  // One parameter holds the whole chunk.
  const std::vector<ParamId>& ids = engine_->layout().chunk(chunk).params;
  return engine_->Acquire({&ids.front(), 1}, *lane_);
}

void StepReplay::EndLeases(size_t moment) {
  for (; ended_ < own_ends_.size() &&
         static_cast<size_t>(own_ends_[ended_].before) <= moment;
       ++ended_) {
    const auto begin = static_cast<size_t>(own_ends_[ended_].use);
    const ChunkId chunk = step_->accesses[begin].chunk;
    for (Use& use : uses_[chunk.index()]) {
      if (use.begin == begin) use.lease.Release();
    }
    std::erase_if(outlasting_,
                  [begin](const Use& use) { return use.begin == begin; });
  }
}

Status StepReplay::OpenGrad(ChunkId chunk) {
  gradients_[chunk.index()] = Gradient::kOpen;
  if (!options_.grads_in_place) return OpenAll(chunk);
  // The last parameter's comes first: the chunk may be used until all are here.
  const std::vector<ParamId>& ids = engine_->layout().chunk(chunk).params;
  const auto last = std::find_if(ids.rbegin(), ids.rend(), [&](ParamId id) {
    return !missing_[id.index()];
  });
  if (last == ids.rend()) return OkStatus();
  return engine_->Grad(*last, *lane_).status();
}

Status StepReplay::OpenAll(ChunkId chunk) {
  for (const ParamId id : engine_->layout().chunk(chunk).params) {
    if (missing_[id.index()]) continue;
    CASTOR_RETURN_IF_ERROR(engine_->Grad(id, *lane_).status());
  }
  return OkStatus();
}

Status StepReplay::CloseGrad(ChunkId chunk) {
  if (!lacks_[chunk.index()]) return HandBack(chunk);
  // The end of the micro-batch reduces the chunk, and all that is open then.
  flushing_ = flushing_ || gradients_[chunk.index()] == Gradient::kOpen;
  return OkStatus();
}

Status StepReplay::HandBack(ChunkId chunk) {
  Gradient& gradient = gradients_[chunk.index()];
  if (gradient != Gradient::kOpen || flushing_) return OkStatus();
  gradient = Gradient::kReady;
  if (options_.grads_in_place) CASTOR_RETURN_IF_ERROR(OpenAll(chunk));
  for (const ParamId id : engine_->layout().chunk(chunk).params) {
    if (missing_[id.index()]) continue;
    CASTOR_RETURN_IF_ERROR(engine_->GradReady(id, *lane_));
  }
  return OkStatus();
}

Status StepReplay::Evaluate(const EvaluationPass& pass) {
  CASTOR_ASSIGN_OR_RETURN(const EvaluateScope scope, engine_->Evaluate());
  std::vector<std::deque<ParamLease>> held(uses_.size());
  for (size_t i = 0; i < pass.accesses.size(); ++i) {
    const auto [kind, chunk] = pass.accesses[i];
    std::deque<ParamLease>& leases = held[chunk.index()];
    if (kind == AccessKind::kUse) {
      CASTOR_ASSIGN_OR_RETURN(ParamLease lease, Hold(chunk));
      leases.push_back(std::move(lease));
    } else {
      leases.pop_front();
    }
    if (!pass.compute_ns.empty()) Compute(pass.compute_ns[i]);
  }
  return OkStatus();
}

void StepReplay::Compute(int64_t ns) {
  if (ns == 0 || options_.device == nullptr) return;
  options_.device->Busy(*lane_, ns);
  compute_ns_ += ns;
}

}  // namespace castor
