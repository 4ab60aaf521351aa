// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/dry/dry_run.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/tier.h"
#include "collectives/dry/dry_world.h"
#include "collectives/dry/step_replay.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/zero_engine.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/lane.h"
#include "placement/run_event.h"
#include "placement/timeline/meetings.h"
#include "placement/trace/grads_in_place.h"

namespace castor {
namespace {

constexpr double kLearningRate = 1e-3;

// What was over when the trainer's lane came to the end of a step.
struct LaneSums {
  int64_t at_ns = 0;
  std::array<int64_t, kSimResources> busy_ns{};
  std::array<StallSum, kRunCauses> stalls{};
};

// What was asked for until a step's end, and what the step asked for.
struct CallSums {
  EngineStats stats;
  StepTraffic traffic;
};

class Run {
 public:
  Run(const DryRunRequest& request, internal::Meetings* meetings)
      : request_(request),
        world_({.machine = request.machine,
                .device_memory = request.device_memory,
                .device_capacity = request.options.device_budget,
                .world = request.world,
                .rank = request.rank,
                .communicator_buffers = request.communicator_buffers,
                .nvme_piece = request.nvme_piece},
               meetings),
        lane_sums_(1 + request.steps.size()) {}
  // What the trainer's lane still has to do asks the engine.
  ~Run() {
    if (lane_ != nullptr) lane_->Drain().IgnoreError();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<SimulationResult> Make() {
    CASTOR_RETURN_IF_ERROR(Open());
    StepReplay replay(
        engine_.get(), request_.params, lane_.get(),
        {.device = request_.machine ? &world_.device() : nullptr,
         .after_access = request_.machine ? nullptr : &world_.executor(),
         .grads_in_place = request_.options.grad_mode == GradMode::kReuse,
         .takes_turns = TakesTurns(),
         .guesses = request_.options.guess_updates});
    std::vector<CallSums> calls(1);
    calls.front().stats = engine_->stats();
    const int64_t begin_ns = world_.now_ns();
    SimulationResult result;
    for (size_t s = 0; s < request_.steps.size(); ++s) {
      CASTOR_RETURN_IF_ERROR(replay.MakeAccesses(*request_.steps[s]));
      lane_->Run([this, sums = &lane_sums_[s + 1], begin_ns,
                  compute_ns = replay.compute_ns()] {
        *sums = {world_.now_ns() - begin_ns, BusyNs(compute_ns),
                 engine_->stats().stalls_by_cause};
        return OkStatus();
      });
      CASTOR_RETURN_IF_ERROR(engine_->Step(kLearningRate).status());
      CallSums& sums = calls.emplace_back();
      sums.stats = engine_->stats();
      result.by_chunk = world_.traffic().Take(engine_->layout().chunks().size(),
                                              &sums.traffic);
      if (CountsNorm(request_.options)) sums.traffic.norm = kNormBytes;
    }
    CASTOR_RETURN_IF_ERROR(lane_->Drain());
    CASTOR_RETURN_IF_ERROR(engine_->Close());
    for (size_t s = 0; s < request_.steps.size(); ++s) {
      result.steps.push_back(
          Between(calls[s], calls[s + 1], lane_sums_[s], lane_sums_[s + 1]));
    }
    const EngineStats last = engine_->stats();
    for (const Tier tier : kAllTiers) {
      result.peak[TierIndex(tier)] = last.tiers[TierIndex(tier)].peak;
    }
    return result;
  }

 private:
  bool TakesTurns() const {
    return request_.world > 1 &&
           ShardingOf(request_.options, request_.world, request_.rank)
               .replicated(StateKind::kParam);
  }

  Status Open() {
    ZeroOptions options = request_.options;
    options.dry = DryEngine{.layout = request_.layout};
    if (request_.plan != nullptr) {
      options.dry->planned = &request_.steps.front()->accesses;
      options.dry->plan = request_.plan;
    }
    world_.Furnish(&options);
    CASTOR_ASSIGN_OR_RETURN(engine_,
                            ZeroEngine::Create(options, world_.communicator()));
    for (const ParamSpec& spec : request_.params) {
      CASTOR_RETURN_IF_ERROR(engine_->Register(spec, {}).status());
    }
    if (options.optimizer.kind == OptimizerKind::kCustom) {
      CASTOR_RETURN_IF_ERROR(
          engine_->SetUpdate([](const UpdateCall&) { return OkStatus(); }));
    }
    SealOptions declared = request_.declared;
    declared.step.reset();
    if (request_.planned_at_seal) declared.step = *request_.steps.front();
    CASTOR_RETURN_IF_ERROR(engine_->Seal(declared));
    for (const StepTrace* const step : request_.steps) {
      CASTOR_RETURN_IF_ERROR(CheckStep(*step));
    }
    world_.traffic() = TrafficBook();
    if (request_.trainer == SimTrainer::kThread) {
      lane_ = std::make_unique<ThreadLane>("compute");
    } else {
      lane_ = world_.device().MakeLane("compute");
    }
    return OkStatus();
  }

  Status CheckStep(const StepTrace& step) {
    if (&step == checked_) return OkStatus();
    checked_ = &step;
    CASTOR_RETURN_IF_ERROR(
        ValidateStep(step, engine_->layout().chunks().size()));
    if (step.accesses.empty()) {
      return InvalidArgument(
          "the trace has no access: there is no step to make");
    }
    if (request_.options.grad_mode == GradMode::kReuse &&
        !GradsInPlace(step.accesses)) {
      return InvalidArgument(
          "gradients are written over parameters, and the trace has some that "
          "are not: it is of another gradient mode (WithGradsInPlace makes it "
          "one of this)");
    }
    return OkStatus();
  }

  std::array<int64_t, kSimResources> BusyNs(int64_t compute_ns) const {
    using internal::Traffic;
    return {compute_ns,
            world_.busy_ns(Traffic::kToDevice),
            world_.busy_ns(Traffic::kFromDevice),
            world_.busy_ns(Traffic::kDriveRead) +
                world_.busy_ns(Traffic::kDriveWrite),
            world_.busy_ns(Traffic::kOptimizer) +
                world_.busy_ns(Traffic::kMemoryPass),
            world_.collectives_ns(),
            world_.busy_ns(Traffic::kDevice)};
  }

  static SimulatedStep Between(const CallSums& a, const CallSums& b,
                               const LaneSums& from, const LaneSums& to) {
    SimulatedStep step;
    step.traffic = b.traffic;
    step.begin_ns = from.at_ns;
    step.end_ns = to.at_ns;
    const auto since = [&](int64_t EngineStats::*count) {
      return b.stats.*count - a.stats.*count;
    };
    step.prefetched_fetches = since(&EngineStats::prefetched_fetches);
    step.prefetched_gathers = since(&EngineStats::prefetched_gathers);
    step.cancelled_gathers = since(&EngineStats::cancelled_gathers);
    step.releases = since(&EngineStats::releases);
    step.divergences = since(&EngineStats::divergences);
    step.reduce_scatters = since(&EngineStats::reduce_scatters);
    for (size_t r = 0; r < step.busy_ns.size(); ++r) {
      step.busy_ns[r] = to.busy_ns[r] - from.busy_ns[r];
    }
    for (size_t c = 0; c < step.stalls.size(); ++c) {
      step.stalls[c] = {to.stalls[c].count - from.stalls[c].count,
                        to.stalls[c].ns - from.stalls[c].ns};
    }
    return step;
  }

  const DryRunRequest& request_;
  DryWorld world_;
  std::vector<LaneSums> lane_sums_;  // by step, from 1; the lane writes them
  std::unique_ptr<ZeroEngine> engine_;
  std::unique_ptr<Lane> lane_;
  const StepTrace* checked_ = nullptr;
};

}  // namespace

Result<SimulationResult> DryRun(const DryRunRequest& request) {
  CASTOR_CHECK(!request.steps.empty());
  const bool instant = !request.machine;
  // Where every collective takes time, who came last does not matter.
  if (request.world == 1 || instant ||
      (request.machine->all_gather && request.machine->reduce_scatter)) {
    internal::Meetings alone;
    return Run(request, &alone).Make();
  }
  SimulationResult result;
  CASTOR_RETURN_IF_ERROR(
      internal::SettleMeetings([&](internal::Meetings* meetings) -> Status {
        CASTOR_ASSIGN_OR_RETURN(result, Run(request, meetings).Make());
        return OkStatus();
      }));
  return result;
}

}  // namespace castor
