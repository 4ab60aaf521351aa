// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/bench/support/twin_training.h"

#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "chunk/base/check.h"
#include "collectives/communicator.h"
#include "collectives/custom_update.h"
#include "collectives/in_process_communicator.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/nvme/queue/simulated_io_queue.h"
#include "offload/twin/simulated_device.h"
#include "offload/twin/simulated_host.h"
#include "offload/twin/simulated_link.h"
#include "offload/worker_pool.h"
#include "placement/trace/access_recorder.h"
#include "placement/trace/trace_file.h"

namespace castor {
namespace {

constexpr double kLearningRate = 1e-3;

// Where a training's work runs, and by which clock.
struct World {
  Executor* executor = nullptr;
  Timer* timer = nullptr;
  Executor* files = nullptr;           // moves the bytes of drives
  VirtualExecutor* counted = nullptr;  // null: another clock
};

SimulatedLinkModels LinksOf(const TwinTraining& training) {
  SimulatedLinkModels links = LinkModelsOf(training.machine, Duplex::kFull);
  links.within_device = training.device_memory;
  return links;
}

std::vector<ChunkId> ChunksOf(const std::vector<MissingGrad>& missing) {
  std::vector<ChunkId> chunks;
  for (const MissingGrad& grad : missing) chunks.push_back(grad.chunk);
  return chunks;
}

class Rank {
 public:
  Rank(const TwinTraining& training, const World& world,
       Communicator* communicator)
      : training_(training),
        world_(world),
        communicator_(communicator),
        drive_(DriveModelOf(training.machine)),
        device_({.capacity = training.options.device_budget,
                 .links = LinksOf(training),
                 .executor = world.executor,
                 .timer = world.timer,
                 .workers = &WorkerPool::Process()}),
        host_({.optimizer = training.machine.optimizer,
               .memory = training.machine.memory},
              world.timer),
        units_(training.units) {
    for (size_t p = 0; p < training.params.size() && training.units.empty();
         ++p) {
      units_.push_back({ParamId(static_cast<int32_t>(p))});
    }
    if (world.counted != nullptr) turn_.emplace(world.counted);
  }

  TwinOutcome Run() {
    TwinOutcome outcome;
    outcome.status = Train(&outcome);
    if (!outcome.status.ok()) communicator_->Abort(outcome.status);
    return outcome;
  }

 private:
  Status Train(TwinOutcome* outcome) {
    CASTOR_RETURN_IF_ERROR(Open());
    outcome->layout = engine_->layout();
    outcome->sealed = engine_->stats();
    recorder_.emplace(
        &engine_->layout(),
        training_.options.accumulation == AccumulationOrder::kLast, InPlace());
    if (training_.world > 1 && training_.options.stage < 3) {
      recorder_->TakeTurns();
    }
    const int64_t begin_ns = world_.timer->NowNs();
    std::vector<int64_t> ends_ns(static_cast<size_t>(training_.steps));
    for (int step = 0; step < training_.steps; ++step) {
      step_ = step;
      short_ = step == training_.short_step;
      if (training_.evaluates) CASTOR_RETURN_IF_ERROR(Evaluate());
      for (int m = 0; m < training_.micro_batches; ++m) {
        CASTOR_RETURN_IF_ERROR(
            MicroBatch(m == 0, m + 1 == training_.micro_batches));
      }
      lane_->Run([this, end = &ends_ns[static_cast<size_t>(step)]] {
        *end = world_.timer->NowNs();
        return OkStatus();
      });
      EndOutlasting(std::numeric_limits<int>::max());
      CASTOR_RETURN_IF_ERROR(engine_->Step(kLearningRate).status());
      outcome->traces.push_back(recorder_->Finish());
      outcome->traces.back().updates_early = training_.updates_early;
      if (training_.outlasts) TakeEnds(&outcome->traces.back());
      outcome->after_step.push_back(engine_->stats());
    }
    const StepTrace recorded = engine_->RecordedTrace().step;
    // Others do not see in which order the chunks of rank 0 were complete.
    CASTOR_CHECK((training_.lacks >= 0 && communicator_->rank() > 0) ||
                 recorded.accesses == outcome->traces.back().accesses);
    CASTOR_CHECK(recorded.leases == outcome->traces.back().leases);
    CASTOR_CHECK(recorded.updates_early == training_.updates_early);
    CASTOR_CHECK(ChunksOf(recorded.missing_grads) ==
                 ChunksOf(outcome->traces.back().missing_grads));
    CASTOR_RETURN_IF_ERROR(lane_->Drain());
    CASTOR_RETURN_IF_ERROR(engine_->Close());
    for (const int64_t end_ns : ends_ns) {
      outcome->step_end_ns.push_back(end_ns - begin_ns);
    }
    outcome->stats = engine_->stats();
    return OkStatus();
  }

  Status Open() {
    ZeroOptions options = training_.options;
    options.executor = world_.executor;
    options.clock = world_.timer;
    options.device = &device_;
    // On the machine's clock its passes take what they take.
    if (training_.clock != TwinClock::kMachine) options.host_passes = &host_;
    if (training_.clock != TwinClock::kMachine) {
      options.nvme_checksums = world_.files;
    }
    options.make_nvme_queue = [this](size_t) {
      return MakeSimulatedIoQueue(
          {.links = &drive_, .executor = world_.files, .timer = world_.timer});
    };
    CASTOR_ASSIGN_OR_RETURN(engine_,
                            ZeroEngine::Create(options, communicator_));
    for (const ParamSpec& spec : training_.params) {
      CASTOR_RETURN_IF_ERROR(engine_->Register(spec, {}).status());
    }
    if (options.optimizer.kind == OptimizerKind::kCustom) {
      CASTOR_RETURN_IF_ERROR(
          engine_->SetUpdate([](const UpdateCall&) { return OkStatus(); }));
    }
    CASTOR_RETURN_IF_ERROR(engine_->Seal(training_.seal));
    if (training_.trainer == SimTrainer::kThread) {
      lane_ = std::make_unique<ThreadLane>("compute");
    } else {
      lane_ = device_.MakeLane("compute");
    }
    return OkStatus();
  }

  void Compute(size_t unit, bool backward) {
    const int64_t ns = training_.compute_ns(unit, backward);
    if (ns > 0) device_.Busy(*lane_, ns);
    recorder_->Compute(ns);
  }

  bool LeavesOut(size_t unit) const {
    return short_ && unit == training_.left_out;
  }

  Status Evaluate() {
    CASTOR_ASSIGN_OR_RETURN(const EvaluateScope scope, engine_->Evaluate());
    recorder_->BeginEvaluation();
    for (size_t u = 0; u < units_.size(); ++u) {
      CASTOR_ASSIGN_OR_RETURN(ParamLease held,
                              engine_->Acquire(units_[u], *lane_));
      const int hold = recorder_->Hold(units_[u]);
      Compute(u, false);
      held.Release();
      recorder_->Release(hold);
    }
    recorder_->EndEvaluation();
    return OkStatus();
  }

  Status MicroBatch(bool first, bool last) {
    CASTOR_RETURN_IF_ERROR(engine_->BeginMicroBatch(last));
    recorder_->BeginMicroBatch(last);
    if (last && training_.updates_early) {
      CASTOR_RETURN_IF_ERROR(engine_->UpdateEarly(kLearningRate));
    }
    if (last && training_.options.guess_updates) {
      CASTOR_RETURN_IF_ERROR(engine_->GuessUpdates(kLearningRate));
    }
    for (size_t u = 0; u < units_.size(); ++u) {
      if (LeavesOut(u)) continue;
      CASTOR_RETURN_IF_ERROR(Use(u, false, last));
    }
    if (first && training_.evaluates) CASTOR_RETURN_IF_ERROR(Evaluate());
    MemoryLease lease;
    if (training_.lease > Bytes(0)) {
      CASTOR_ASSIGN_OR_RETURN(lease, engine_->Borrow(training_.lease, *lane_));
      recorder_->SetLeased(training_.lease);
    }
    for (size_t u = units_.size(); u-- > 0;) {
      if (LeavesOut(u)) continue;
      CASTOR_RETURN_IF_ERROR(Use(u, true, last));
    }
    if (training_.lease > Bytes(0)) {
      lease.Release();
      recorder_->SetLeased(Bytes(0));
    }
    return OkStatus();
  }

  // Gradients are written over parameters.
  bool InPlace() const {
    return training_.options.grad_mode == GradMode::kReuse;
  }

  bool HasGradient(ParamId id, bool last) const {
    const bool skipped = last && training_.micro_batches > 1 &&
                         training_.skipped_last == id.value();
    const bool lacks = communicator_->rank() == 0 && step_ % 2 == 1 &&
                       training_.lacks == id.value();
    return training_.params[id.index()].trainable && !skipped && !lacks &&
           training_.unused != id.value();
  }

  Status Use(size_t unit, bool backward, bool last) {
    const std::vector<ParamId>& ids = units_[unit];
    CASTOR_ASSIGN_OR_RETURN(ParamLease held, engine_->Acquire(ids, *lane_));
    const int hold = recorder_->Hold(ids);
    std::vector<ParamId> grads;
    for (const ParamId id : ids) {
      if (backward && HasGradient(id, last)) grads.push_back(id);
    }
    if (InPlace() && backward) {
      Compute(unit, backward);
      held.Release();
      recorder_->Release(hold);
    }
    for (const ParamId id : grads) {
      CASTOR_RETURN_IF_ERROR(engine_->Grad(id, *lane_).status());
      recorder_->OpenGrad(id);
    }
    Compute(unit, backward);
    for (const ParamId id : grads) {
      if (training_.left_open == id.value()) continue;
      CASTOR_RETURN_IF_ERROR(engine_->GradReady(id, *lane_));
      recorder_->GradReady(id);
    }
    if (InPlace() && backward) return OkStatus();
    EndOutlasting(1);
    const int further =
        backward || !training_.outlasts ? 0 : training_.outlasts(step_, unit);
    if (further > 0) {
      outlasting_.push_back({further, hold, std::move(held)});
      return OkStatus();
    }
    held.Release();
    recorder_->Release(hold);
    return OkStatus();
  }

  // So many more uses were made: leases that went on for as many end.
  void EndOutlasting(int uses) {
    for (Outlasting& use : outlasting_) {
      use.further -= uses;
      if (use.further > 0) continue;
      use.held.Release();
      recorder_->Release(use.hold);
    }
    std::erase_if(outlasting_,
                  [](const Outlasting& use) { return use.further <= 0; });
  }

  // The engine knows which ends ranks agreed on, the recorder all else. Nothing
  // but ends of uses stands elsewhere.
  void TakeEnds(StepTrace* step) const {
    const StepTrace agreed = engine_->RecordedTrace().step;
    std::vector<int32_t> moments;  // there, by those of the recorder
    size_t at = 0;
    for (const Access& access : step->accesses) {
      const bool end = access.kind == AccessKind::kUseEnd;
      while (!end && agreed.accesses[at].kind == AccessKind::kUseEnd) ++at;
      CASTOR_CHECK(end || agreed.accesses[at] == access);
      moments.push_back(static_cast<int32_t>(end ? at - 1 : at++));
    }
    std::vector<int64_t> compute_ns(agreed.accesses.size());
    for (size_t i = 0; i < moments.size(); ++i) {
      compute_ns[static_cast<size_t>(moments[i])] += step->compute_ns[i];
    }
    for (WaitingGrad& grad : step->waiting) {
      grad.moment = moments[static_cast<size_t>(grad.moment)];
    }
    step->accesses = agreed.accesses;
    step->compute_ns = std::move(compute_ns);
    step->lease_ends = agreed.lease_ends;
    step->leases = agreed.leases;
  }

  // A lease that goes on after its use.
  struct Outlasting {
    int further = 0;  // uses
    int hold = 0;
    ParamLease held;
  };

  const TwinTraining& training_;
  const World world_;
  Communicator* communicator_;
  SimulatedLinks drive_;
  SimulatedDevice device_;
  SimulatedHost host_;
  std::vector<std::vector<ParamId>> units_;
  std::unique_ptr<ZeroEngine> engine_;
  std::unique_ptr<Lane> lane_;
  std::optional<AccessRecorder> recorder_;
  std::vector<Outlasting> outlasting_;
  int step_ = 0;        // that is made
  bool short_ = false;  // it leaves a unit out
  std::optional<VirtualParticipant> turn_;
};

}  // namespace

TwinOutcome TrainOnTwins(const TwinTraining& training) {
  // They wait for the system most of the time.
  constexpr int kFileThreads = 2;
  std::optional<VirtualExecutor> counted;
  std::optional<ThreadPool> pool;
  std::optional<ThreadPool> files;
  std::optional<SteadyTimer> timer;
  World world;
  if (training.clock == TwinClock::kCounted) {
    VirtualExecutor* const all = &counted.emplace();
    world = {all, all, all, all};
  } else {
    // More than cores, so that a lane's turn does not wait for a long pass of
    // another.
    const int threads = 4 * (training.world + 1);
    world = {&pool.emplace(threads), &timer.emplace(),
             &files.emplace(kFileThreads), nullptr};
  }
  // Nobody is late on a clock that jumps.
  auto ranks = MakeInProcessWorld({.world = training.world,
                                   .executor = world.executor,
                                   .timeout_ns = 0,
                                   .clock = world.timer});
  std::vector<TwinOutcome> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < outcomes.size(); ++r) {
    threads.emplace_back(
        [&, r] { outcomes[r] = Rank(training, world, ranks[r].get()).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const TwinOutcome& outcome : outcomes) {
    if (outcome.status.ok()) continue;
    TwinOutcome failed;
    failed.status = outcome.status;
    return failed;
  }
  return std::move(outcomes.front());
}

}  // namespace castor
