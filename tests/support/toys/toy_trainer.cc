// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/toys/toy_trainer.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/ids.h"
#include "collectives/in_process_communicator.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/optimizer_groups.h"
#include "offload/lane.h"
#include "tests/support/fakes/fake_nccl_world.h"
#include "tests/support/toys/toy_gpu.h"
#include "tests/support/toys/toy_lanes.h"

namespace castor {
namespace {

// What a rank saw, told from any thread.
class Sightings {
 public:
  explicit Sightings(size_t size) : hashes_(size) {}

  void Tell(size_t place, uint64_t hash) {
    uint64_t known = 0;
    if (!hashes_[place].compare_exchange_strong(known, hash) && known != hash) {
      contradicted_ = true;
    }
  }
  bool contradicted() const { return contradicted_; }
  std::vector<uint64_t> Take() const {
    return {hashes_.begin(), hashes_.end()};
  }

 private:
  std::vector<std::atomic<uint64_t>> hashes_;
  std::atomic<bool> contradicted_ = false;
};

class ToyRank {
 public:
  ToyRank(const ToyModel& model, const ToyRun& run, const ZeroOptions& options,
          Communicator* communicator, ToyGpu* gpu)
      : model_(model),
        run_(run),
        communicator_(communicator),
        seen_(static_cast<size_t>(run.steps + 1) * model.params.size()),
        fp32_grads_(options.grad_mode == GradMode::kFp32),
        grads_in_place_(options.grad_mode == GradMode::kReuse),
        gpu_(gpu),
        lanes_(options, run.worker_lanes, LargestOf(model), gpu),
        chance_(run.seed * 1024 + static_cast<uint64_t>(communicator->rank())) {
  }
  // Work on a gradient that was never handed back ends before its memory does.
  ~ToyRank() { DrainLanes().IgnoreError(); }
  ToyRank(const ToyRank&) = delete;
  ToyRank& operator=(const ToyRank&) = delete;

  Status Train(const ZeroOptions& options, ToyResult& result) {
    CASTOR_ASSIGN_OR_RETURN(engine_,
                            ZeroEngine::Create(options, communicator_));
    CASTOR_RETURN_IF_ERROR(RegisterAndSeal());
    if (run_.update) {
      CASTOR_RETURN_IF_ERROR(engine_->SetUpdate(
          [this](const UpdateCall& call) { return Update(call); }));
    }
    if (run_.after_seal) CASTOR_RETURN_IF_ERROR(run_.after_seal(*engine_));
    for (at_.step = run_.first_step; at_.step < run_.steps; ++at_.step) {
      for (at_.attempt = 0;; ++at_.attempt) {
        CASTOR_ASSIGN_OR_RETURN(const bool abandoned, ComputeGradients());
        if (!abandoned) break;
      }
      CASTOR_RETURN_IF_ERROR(SetRates(options));
      CASTOR_ASSIGN_OR_RETURN(const StepResult stepped, engine_->Step(run_.lr));
      result.norms.push_back(stepped.grad_norm);
      result.stepped.push_back(stepped);
      if (run_.after_step && communicator_->rank() == 0) {
        run_.after_step(*engine_, at_.step);
      }
      if (run_.between_steps && at_.step + 1 < run_.steps) {
        kept_.clear();
        CASTOR_RETURN_IF_ERROR(run_.between_steps(*engine_, at_.step));
      }
    }
    kept_.clear();
    for (size_t p = 0; p < ids_.size(); ++p) {
      std::vector<float> values(
          static_cast<size_t>(toy::SizeOf(model_.params[p])));
      CASTOR_RETURN_IF_ERROR(engine_->ReadParam(ids_[p], values));
      result.weights.push_back(std::move(values));
    }
    CASTOR_ASSIGN_OR_RETURN(result.digest, engine_->WeightDigest());
    result.layout = engine_->layout();
    // What is still being read while the engine closes must stay good.
    if (run_.evaluates) CASTOR_RETURN_IF_ERROR(Evaluate());
    kept_.clear();
    CASTOR_RETURN_IF_ERROR(engine_->Close());
    result.stats = engine_->stats();
    engine_.reset();
    CASTOR_RETURN_IF_ERROR(DrainLanes());
    result.seen = seen_.Take();
    return seen_.contradicted()
               ? Internal("a parameter changed its value within a step")
               : OkStatus();
  }

 private:
  static Bytes BytesOfParam(const ToyModel& model, size_t param) {
    return BytesOf(Elements(toy::SizeOf(model.params[param])),
                   model.params[param].dtype);
  }
  // Of a parameter or a gradient.
  static Bytes LargestOf(const ToyModel& model) {
    Bytes largest;
    for (const ParamSpec& spec : model.params) {
      largest =
          std::max(largest, BytesOf(Elements(toy::SizeOf(spec)), DType::kF32));
    }
    return largest;
  }

  Status Update(const UpdateCall& call) {
    if (!call.on_device || gpu_ == nullptr) return run_.update(call);
    std::vector<UpdateRun> runs(call.runs.begin(), call.runs.end());
    for (UpdateRun& run : runs) {
      run.values = gpu_->cuda().Reach(run.values);
      run.grad = gpu_->cuda().Reach(run.grad);
      for (float*& state : run.states) {
        if (state != nullptr) state = gpu_->cuda().Reach(state);
      }
    }
    gpu_->cuda().Launch(call.stream, [this, call, runs = std::move(runs)] {
      UpdateCall reached = call;
      reached.runs = runs;
      const Status updated = run_.update(reached);
      CASTOR_CHECK(updated.ok());
    });
    return OkStatus();
  }

  Status SetRates(const ZeroOptions& options) {
    if (!run_.rate) return OkStatus();
    CASTOR_RETURN_IF_ERROR(
        engine_->SetLearningRate("", run_.rate("", at_.step)));
    for (const OptimizerGroup& group : options.groups) {
      CASTOR_RETURN_IF_ERROR(engine_->SetLearningRate(
          group.name, run_.rate(group.name, at_.step)));
    }
    return OkStatus();
  }

  Status DrainLanes() {
    Status first;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const Status drained = lanes_[i].Drain();
      if (first.ok()) first = drained;
    }
    return first;
  }

  Status RegisterAndSeal() {
    for (size_t p = 0; p < model_.params.size(); ++p) {
      CASTOR_ASSIGN_OR_RETURN(
          const ParamId id, engine_->Register(
                                model_.params[p],
                                [p, dtype = model_.params[p].dtype](
                                    int64_t begin, int64_t end, float* out) {
                                  for (int64_t i = begin; i < end; ++i) {
                                    out[i - begin] =
                                        toy::InitialValue(dtype, p, i);
                                  }
                                },
                                model_.groups.empty() ? "" : model_.groups[p]));
      ids_.push_back(id);
    }
    SealOptions declared;
    if (run_.declares) declared = Declared();
    if (run_.grows) {
      declared.grow = true;
      declared.micro_batches = run_.micro_batches;
    }
    declared.step = run_.step;
    return engine_->Seal(declared);
  }

  size_t Next(size_t param) const {
    return std::min(param + 1, ids_.size() - 1);
  }

  SealOptions Declared() const {
    SealOptions declared;
    declared.micro_batches = run_.micro_batches;
    std::vector<HeldTogether>& held = declared.held;
    // Whose gradients are begun, and not handed back.
    std::vector<ParamId> begun;
    for (size_t p = 0; p < ids_.size(); ++p) {
      held.push_back({{ids_[p], ids_[Next(p)]}, {}});
      if (toy::Tied(run_, p) && MayUse(p)) begun.push_back(ids_[p]);
    }
    for (ParamId id : begun) held.push_back({{id}, begun});
    std::vector<ParamId> open;
    for (size_t p = ids_.size(); p-- > 0;) {
      if (MayUse(p)) {
        if (!toy::Tied(run_, p)) begun.push_back(ids_[p]);
        held.push_back({{ids_[p]}, begun});
        open.push_back(ids_[p]);
      }
      if (run_.evaluates) {
        for (ParamId id : ids_) held.push_back({{id}, begun});
      }
      if (MayUse(p)) std::erase(begun, ids_[p]);
    }
    if (toy::Irregular(run_)) held.push_back({{}, open});
    return declared;
  }

  // Whether the parameter ever has a gradient.
  bool MayUse(size_t param) const {
    ToyRun always = run_;
    always.skipped = 0;
    return toy::Uses(model_, always, param, 0, 0);
  }
  bool Uses(size_t param) const {
    return toy::Uses(model_, run_, param, at_.step, at_.micro_batch) &&
           !toy::SkippedBy(run_, param, communicator_->rank(), at_.step,
                           at_.micro_batch);
  }

  Lane& LaneFor(size_t param) { return lanes_[param]; }

  // The gradients of one step; true when they were abandoned.
  Result<bool> ComputeGradients() {
    for (at_.micro_batch = 0; at_.micro_batch < run_.micro_batches;
         ++at_.micro_batch) {
      CASTOR_RETURN_IF_ERROR(engine_->BeginMicroBatch(
          run_.always_last || at_.micro_batch + 1 == run_.micro_batches));
      if (run_.updates_early) {
        CASTOR_RETURN_IF_ERROR(engine_->UpdateEarly(run_.lr));
      }
      if (run_.guesses) {
        CASTOR_RETURN_IF_ERROR(
            engine_->GuessUpdates(at_.step % 3 == 2 ? 2 * run_.lr : run_.lr));
      }
      CASTOR_ASSIGN_OR_RETURN(bool abandoned, Forward());
      if (!abandoned) {
        CASTOR_ASSIGN_OR_RETURN(abandoned, Backward());
      }
      if (abandoned) return true;
    }
    return Pass(ToyPoint::kEnd, 0);
  }

  // What the run wants to happen at a moment; true when the step is abandoned.
  Result<bool> Pass(ToyPoint point, size_t param) {
    at_.point = point;
    at_.param = param;
    if (run_.evaluates && run_.evaluates(at_)) {
      CASTOR_RETURN_IF_ERROR(Evaluate());
    }
    if (run_.fails && run_.fails(at_)) return Unavailable("the rank gave up");
    if (!run_.abandons || !run_.abandons(at_)) return false;
    CASTOR_RETURN_IF_ERROR(engine_->Abandon());
    return true;
  }

  Result<bool> Forward() {
    if (run_.blind) return false;
    for (size_t p = 0; p < ids_.size(); ++p) {
      CASTOR_ASSIGN_OR_RETURN(const bool abandoned,
                              Pass(ToyPoint::kForward, p));
      if (abandoned) return true;
      // Forward holds two parameters at a time.
      CASTOR_RETURN_IF_ERROR(Look({p, Next(p)}));
    }
    for (size_t p = 0; p < ids_.size(); ++p) {
      if (toy::Tied(run_, p)) CASTOR_RETURN_IF_ERROR(Look({p}));
    }
    return false;
  }

  Result<bool> Backward() {
    for (size_t p = 0; p < ids_.size(); ++p) {
      if (!toy::Tied(run_, p) || !Uses(p)) continue;
      CASTOR_RETURN_IF_ERROR(Differentiate(p, 1, p + 1));
    }
    for (size_t p = ids_.size(); p-- > 0;) {
      if (!Uses(p)) {
        if (run_.acquires_all &&
            (!model_.params[p].trainable ||
             toy::Uses(model_, run_, p, at_.step, at_.micro_batch))) {
          CASTOR_RETURN_IF_ERROR(Look({p}));
          if (model_.params[p].trainable) {
            CASTOR_ASSIGN_OR_RETURN(bool abandoned, Pass(ToyPoint::kOpened, p));
            if (abandoned) return true;
            CASTOR_ASSIGN_OR_RETURN(abandoned, Pass(ToyPoint::kBackward, p));
            if (abandoned) return true;
          }
        }
        continue;
      }
      // The second piece is added after the first, on whichever lane.
      if (toy::Tied(run_, p)) LaneFor(p).Wait(LaneFor(p + 1).Record());
      CASTOR_RETURN_IF_ERROR(Differentiate(p, 0, p));
      CASTOR_ASSIGN_OR_RETURN(bool abandoned, Pass(ToyPoint::kOpened, p));
      if (abandoned) return true;
      if (!toy::LeftOpen(run_, p, at_.step, at_.micro_batch)) {
        CASTOR_RETURN_IF_ERROR(engine_->GradReady(ids_[p], LaneFor(p)));
      }
      CASTOR_ASSIGN_OR_RETURN(abandoned, Pass(ToyPoint::kBackward, p));
      if (abandoned) return true;
    }
    return false;
  }

  // Holds some parameters and looks at the first.
  Status Look(const std::vector<size_t>& params) {
    std::vector<ParamId> held;
    for (size_t p : params) held.push_back(ids_[p]);
    const size_t p = params[0];
    CASTOR_ASSIGN_OR_RETURN(ParamLease lease,
                            engine_->Acquire(held, LaneFor(p)));
    lanes_.Run(p, lease.data(0), BytesOfParam(model_, p), nullptr, Bytes(0),
               [this, dtype = model_.params[p].dtype,
                count = toy::SizeOf(model_.params[p]),
                place = SightOf(p)](const void* data, void*) {
                 seen_.Tell(place, toy::HashOf(data, dtype, count));
               });
    if (run_.keeps > 0) Keep(p, std::move(lease));
    return OkStatus();
  }

  // Holds some leases for longer, and ends some of those held before, as chance
  // has it on this rank.
  void Keep(size_t p, ParamLease lease) {
    std::bernoulli_distribution ends(0.2);
    for (size_t k = kept_.size(); k-- > 0;) {
      if (!ends(chance_)) continue;
      Kept& kept = kept_[k];
      // A kept lease shows the same values until the step ends.
      if (kept.sight == SightOf(kept.param)) {
        LookAgain(kept);
      }
      kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(k));
    }
    if (std::bernoulli_distribution(run_.keeps)(chance_)) {
      kept_.push_back({p, SightOf(p), std::move(lease)});
    }
  }

  size_t SightOf(size_t param) const {
    return static_cast<size_t>(at_.step) * ids_.size() + param;
  }

  Status Differentiate(size_t p, int use, size_t on) {
    Lane& lane = lanes_[on];
    ParamLease lease;
    if (!run_.blind) {
      CASTOR_ASSIGN_OR_RETURN(lease,
                              engine_->Acquire(std::span(&ids_[p], 1), lane));
    }
    // The weights are gone with the first call of Grad: they are looked at
    // before.
    const auto seen = std::make_shared<std::vector<std::byte>>();
    const void* weights = run_.blind ? nullptr : lease.data(0);
    const Bytes weight_bytes = BytesOfParam(model_, p);
    if (grads_in_place_ && !run_.blind) {
      lanes_.Run(on, weights, weight_bytes, nullptr, Bytes(0),
                 [seen, weight_bytes](const void* read, void*) {
                   const auto* const from = static_cast<const std::byte*>(read);
                   seen->assign(from, from + weight_bytes.count());
                 });
      lease.Release();
      std::erase_if(kept_, [&](const Kept& kept) {
        return kept.param == p || Next(kept.param) == p;
      });
      weights = nullptr;
    }
    CASTOR_ASSIGN_OR_RETURN(void* const grad, engine_->Grad(ids_[p], lane));
    const int rank = engine_->rank();
    const toy::GradPlace place = {
        .param = p,
        .rank = rank,
        .step = at_.step,
        .micro_batch = at_.micro_batch,
        .use = use,
        .overflows = toy::Overflows(run_, rank, at_.step, at_.micro_batch, p),
        .loss_scale = engine_->LossScale()};
    const DType dtype = model_.params[p].dtype;
    const DType grad_dtype = toy::GradDType(dtype, fp32_grads_);
    const int64_t count = toy::SizeOf(model_.params[p]);
    lanes_.Run(
        on, weights, weight_bytes, grad, BytesOf(Elements(count), grad_dtype),
        [seen, place, dtype, grad_dtype, count](const void* weight, void* sum) {
          toy::AddGradient(place, seen->empty() ? weight : seen->data(), dtype,
                           count, sum, grad_dtype);
        });
    return OkStatus();
  }

  Status Evaluate() {
    CASTOR_ASSIGN_OR_RETURN(const EvaluateScope scope, engine_->Evaluate());
    for (size_t p = 0; p < ids_.size(); ++p) {
      CASTOR_RETURN_IF_ERROR(Look({p}));
    }
    return OkStatus();
  }

  struct Kept {
    size_t param = 0;
    size_t sight = 0;
    ParamLease lease;
  };

  void LookAgain(const Kept& kept) {
    const size_t p = kept.param;
    lanes_.Run(p, kept.lease.data(0), BytesOfParam(model_, p), nullptr,
               Bytes(0),
               [this, dtype = model_.params[p].dtype,
                count = toy::SizeOf(model_.params[p]),
                place = kept.sight](const void* data, void*) {
                 seen_.Tell(place, toy::HashOf(data, dtype, count));
               });
  }

  const ToyModel& model_;
  const ToyRun& run_;
  Communicator* const communicator_;
  Sightings seen_;
  const bool fp32_grads_;
  const bool grads_in_place_;
  ToyGpu* const gpu_;
  ToyLanes lanes_;  // outlive the engine
  std::unique_ptr<ZeroEngine> engine_;
  std::vector<ParamId> ids_;
  ToyMoment at_;
  std::mt19937_64 chance_;  // this rank's
  std::vector<Kept> kept_;
};

}  // namespace

ToyResult TrainToyRank(const ToyModel& model, const ToyRun& run,
                       const ZeroOptions& options, Communicator* communicator,
                       ToyGpu* gpu) {
  ToyResult result;
  result.status =
      ToyRank(model, run, options, communicator, gpu).Train(options, result);
  // A rank that never had an engine has told nobody.
  if (!result.status.ok()) communicator->Abort(result.status);
  return result;
}

namespace {

// 0: none.
int HardwareQueues() {
  const char* const queues = std::getenv("CASTOR_TEST_HARDWARE_QUEUES");
  return queues == nullptr ? 0 : std::atoi(queues);
}

std::vector<ToyResult> TrainOnGpus(const std::vector<ToyPart>& parts,
                                   const ToyGpuOptions& toy) {
  FakeNcclWorld world(static_cast<int>(parts.size()), {}, toy.hardware_queues);
  NcclOptions nccl;
  nccl.exchange_bytes = KiB(4);
  for (const Status& joined : world.Join(nccl)) CASTOR_CHECK(joined.ok());
  std::vector<ToyResult> results(parts.size());
  OnEveryRank(world.size(), [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    ToyGpu gpu(&world.cuda(), &world.device(rank), rank, toy);
    ZeroOptions options = parts[r].options;
    options.device = &gpu.device();
    // What NCCL needs for itself, the test does not know of.
    options.device_budget += world.comm(rank).buffer_bytes();
    results[r] = TrainToyRank(parts[r].model, parts[r].run, options,
                              &world.comm(rank), &gpu);
  });
  return results;
}

}  // namespace

std::vector<ToyResult> TrainToyParts(const std::vector<ToyPart>& parts) {
  if (HardwareQueues() > 0 && parts[0].options.device == nullptr) {
    return TrainOnGpus(parts,
                       {.hardware_queues = HardwareQueues(), .loads_each = 7});
  }
  InProcessOptions in_process;
  in_process.world = static_cast<int>(parts.size());
  in_process.executor = parts[0].options.executor;
  std::vector<std::unique_ptr<Communicator>> communicators =
      MakeInProcessWorld(in_process);
  std::vector<ToyResult> results(parts.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < parts.size(); ++r) {
    threads.emplace_back([&, r] {
      results[r] = TrainToyRank(parts[r].model, parts[r].run, parts[r].options,
                                communicators[r].get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

namespace {

// What rank 0 saw, as all must have.
ToyResult Agreed(std::vector<ToyResult> results) {
  for (const ToyResult& result : results) {
    if (!result.status.ok()) {
      results[0].status = result.status;
      break;
    }
    if (result.seen != results[0].seen || result.norms != results[0].norms ||
        result.weights != results[0].weights) {
      results[0].status = Internal("ranks saw different values");
    }
  }
  return std::move(results[0]);
}

std::vector<ToyPart> Alike(const ToyModel& model, const ToyRun& run, int world,
                           const ZeroOptions& options) {
  return std::vector<ToyPart>(static_cast<size_t>(world),
                              ToyPart{model, run, options});
}

}  // namespace

ToyResult TrainToy(const ToyModel& model, const ToyRun& run, int world,
                   const ZeroOptions& options) {
  return Agreed(TrainToyParts(Alike(model, run, world, options)));
}

ToyResult TrainToyOnGpus(const ToyModel& model, const ToyRun& run, int world,
                         const ZeroOptions& options, const ToyGpuOptions& gpu) {
  return Agreed(TrainOnGpus(Alike(model, run, world, options), gpu));
}

bool RaiseAsAsked(const Status& status, ZeroOptions& options) {
  if (status.code() != ErrorCode::kInfeasible) return false;
  const BudgetRaise* best = nullptr;
  for (const BudgetRaise& raise : status.raises()) {
    if (raise.nvme > Bytes(0)) continue;
    if (best == nullptr || raise.device < best->device) best = &raise;
  }
  if (best == nullptr) return false;
  options.device_budget += best->device;
  options.host_budget += best->host;
  return true;
}

}  // namespace castor
