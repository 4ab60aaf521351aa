// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/simulated_rank.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <tuple>
#include <utility>

#include "placement/planner/step_planner.h"
#include "placement/trace/micro_batches.h"
#include "placement/trace/use_order.h"

namespace castor::internal {
namespace {

const TierModel kInstantMachine;

int64_t RingNs(const std::optional<RingModel>& ring, Bytes bytes, int world) {
  if (!ring) return 0;
  return std::llround(RingSeconds(*ring, 1, bytes, world) * 1e9);
}

}  // namespace

SimulatedRank::SimulatedRank(const SimulatedEngine* engine,
                             const TierModel* machine, SimTrainer trainer,
                             const std::optional<LinkModel>& device_memory,
                             Meetings* meetings)
    : SimulatedRank(engine, machine,
                    trainer == SimTrainer::kThread ? SimLane::Kind::kThread
                                                   : SimLane::Kind::kQueue,
                    SimLane::Kind::kQueue, device_memory, meetings) {}

SimulatedRank::SimulatedRank(const SimulatedEngine* engine, Meetings* meetings)
    : SimulatedRank(engine, &kInstantMachine, SimLane::Kind::kThread,
                    SimLane::Kind::kThread, std::nullopt, meetings) {}

SimulatedRank::SimulatedRank(const SimulatedEngine* engine,
                             const TierModel* machine, SimLane::Kind trainer,
                             SimLane::Kind lanes,
                             const std::optional<LinkModel>& device_memory,
                             Meetings* meetings)
    : engine_(engine),
      machine_(machine),
      meetings_(meetings),
      timed_(lanes == SimLane::Kind::kQueue),
      wires_(&loop_, *machine, device_memory),
      traffic_(engine->chunks.size()),
      moves_(&loop_, lanes, &wires_, engine, &traffic_),
      copies_(&engine->problem, engine->slot_bytes, this),
      trainer_(&loop_, trainer),
      comm_(&loop_, lanes),
      reduce_(&loop_, lanes),
      host_(&loop_, lanes),
      device_(&loop_, lanes),
      held_in_place_(engine->chunks.size()),
      grads_(engine->chunks.size()) {}

std::array<int64_t, kSimResources> SimulatedRank::busy_ns() const {
  return {compute_ns_,
          wires_.busy_ns(Traffic::kToDevice),
          wires_.busy_ns(Traffic::kFromDevice),
          wires_.busy_ns(Traffic::kDriveRead) +
              wires_.busy_ns(Traffic::kDriveWrite),
          wires_.busy_ns(Traffic::kOptimizer) +
              wires_.busy_ns(Traffic::kMemoryPass),
          collectives_ns_,
          wires_.busy_ns(Traffic::kDevice)};
}

std::vector<StepTraffic> SimulatedRank::TakeTraffic(StepTraffic* all) {
  std::vector<StepTraffic> taken(traffic_.size());
  std::swap(taken, traffic_);
  *all = std::exchange(other_traffic_, {});
  for (const StepTraffic& of_chunk : taken) *all += of_chunk;
  return taken;
}

Status SimulatedRank::MakeStep(const StepTrace& step,
                               std::function<void()> ended) {
  const std::vector<bool> in_last =
      InLastMicroBatch(step.accesses, engine_->chunks.size());
  updates_early_ = step.updates_early;
  missing_grads_ = ChunksMissingGrads(step, grads_.size());
  leases_ = DirectLeases(step);
  leases_followed_ = 0;
  auto pass = step.evaluations.begin();
  auto waiting = step.waiting.begin();
  for (size_t i = 0; i < step.accesses.size(); ++i) {
    for (; pass != step.evaluations.end() &&
           static_cast<size_t>(pass->moment) == i;
         ++pass) {
      CASTOR_RETURN_IF_ERROR(Evaluate(*pass));
    }
    FollowLeases(i);
    CASTOR_RETURN_IF_ERROR(Serve(step, i, in_last[i]));
    if (!step.compute_ns.empty()) Compute(step.compute_ns[i]);
    for (; waiting != step.waiting.end() &&
           static_cast<size_t>(waiting->moment) == i;
         ++waiting) {
      grads_[waiting->chunk.index()].ready = trainer_.Record();
    }
  }
  for (; pass != step.evaluations.end(); ++pass) {
    CASTOR_RETURN_IF_ERROR(Evaluate(*pass));
  }
  FollowLeases(step.accesses.size());
  trainer_.Run(std::move(ended));
  if (copies_.EndStep()) CASTOR_RETURN_IF_ERROR(PlanAnew(step));
  if (CountsNorm()) CASTOR_RETURN_IF_ERROR(CountLeftSquares());
  Agree();
  const bool refreshes = engine_->refreshed_ranks > 1;
  for (const ChunkId chunk :
       OrderOfFirstUses(refreshes ? Trace() : step.accesses, grads_.size())) {
    if (!grads_[chunk.index()].valid) continue;
    if (!grads_[chunk.index()].updated) CASTOR_RETURN_IF_ERROR(Update(chunk));
    if (refreshes) CASTOR_RETURN_IF_ERROR(Refresh(chunk));
    grads_[chunk.index()] = Gradient();
  }
  copies_.BeginStep();
  return OkStatus();
}

std::vector<SimulatedRank::DirectLease> SimulatedRank::DirectLeases(
    const StepTrace& step) const {
  const Trace& trace = step.accesses;
  std::vector<DirectLease> leases;
  std::vector<std::deque<size_t>> under(grads_.size());  // moments of uses
  std::vector<std::optional<size_t>> own_end(trace.size());
  for (const LeaseEnd& end : step.lease_ends) {
    own_end[static_cast<size_t>(end.use)] = static_cast<size_t>(end.before);
  }
  for (size_t i = 0; i < trace.size(); ++i) {
    const auto [kind, chunk] = trace[i];
    if (!Direct(chunk) || UseOfGrad(trace, i)) continue;
    std::deque<size_t>& uses = under[chunk.index()];
    if (kind == AccessKind::kUse) {
      leases.push_back({i, chunk, true, false});
      uses.push_back(i);
    } else if (kind == AccessKind::kUseEnd) {
      const size_t end = own_end[uses.front()].value_or(i + 1);
      leases.push_back({end, chunk, false, end > i + 1});
      uses.pop_front();
    }
  }
  std::sort(leases.begin(), leases.end(),
            [](const DirectLease& a, const DirectLease& b) {
              return std::tuple(a.moment, a.chunk, a.begins) <
                     std::tuple(b.moment, b.chunk, b.begins);
            });
  return leases;
}

void SimulatedRank::FollowLeases(size_t moment) {
  for (; leases_followed_ < leases_.size() &&
         leases_[leases_followed_].moment == moment;
       ++leases_followed_) {
    const DirectLease& lease = leases_[leases_followed_];
    held_in_place_[lease.chunk.index()] += lease.begins ? 1 : -1;
    if (lease.outlasts) {
      moves_.AddReader(lease.chunk, StateKind::kParam, trainer_.Record());
    }
  }
}

Status SimulatedRank::PlanAnew(const StepTrace& step) {
  if (&step == known_step_) {
    copies_.Adopt(step.accesses, *known_plan_);
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(
      const StepPlan made,
      PlanStep(engine_->policy, step.accesses, engine_->problem));
  copies_.Adopt(step.accesses, made.plan);
  return OkStatus();
}

Status SimulatedRank::Serve(const StepTrace& step, size_t moment,
                            bool last_micro_batch) {
  const Trace& trace = step.accesses;
  const ChunkId chunk = trace[moment].chunk;
  const bool of_grad = UseOfGrad(trace, moment);
  SimSlot& slot = grads_[chunk.index()].slot;
  switch (trace[moment].kind) {
    case AccessKind::kUse: {
      CASTOR_ASSIGN_OR_RETURN(const GatheredCopies::Ready ready,
                              copies_.Acquire(chunk));
      if (!of_grad) {
        WaitOn(ready.event, ready.cause);
      }
      return OkStatus();
    }
    case AccessKind::kUseEnd: {
      SimEvent end;
      if (of_grad) {
        CASTOR_ASSIGN_OR_RETURN(end, Reduce(chunk, last_micro_batch));
      } else {
        end = trainer_.Record();
      }
      copies_.EndUse(chunk, std::move(end));
      return OkStatus();
    }
    case AccessKind::kGradOpen: {
      CASTOR_ASSIGN_OR_RETURN(slot, copies_.OpenGrad(chunk));
      if (OpensZeros(step, moment)) {
        device_.Wait(PlaceUnused(chunk));
        QueueKernel(device_, Facts(chunk).gathered_grad);
        grads_[chunk.index()].ready = device_.Record();
        return OkStatus();
      }
      WaitOn(PlaceUnused(chunk), RunCause::kGradient);
      QueueKernel(trainer_, Facts(chunk).gathered_grad);  // zeroes it
      return OkStatus();
    }
    case AccessKind::kGradClose: {
      SimEvent free_after;
      if (!copies_.grad_in_place(chunk)) {
        CASTOR_ASSIGN_OR_RETURN(free_after, Reduce(chunk, last_micro_batch));
      }
      copies_.CloseGrad(chunk, slot, std::move(free_after));
      Gradient& grad = grads_[chunk.index()];
      if (UpdatesEarly(chunk, last_micro_batch) && !grad.updated) {
        grad.updated = true;
        return Update(chunk);
      }
      return OkStatus();
    }
  }
  return OkStatus();
}

// Where ranks wait for each other, and the trainer had no time for it.
bool SimulatedRank::OpensZeros(const StepTrace& step, size_t moment) const {
  if (engine_->world == 1 || engine_->param_ranks > 1) return false;
  const ChunkId chunk = step.accesses[moment].chunk;
  const AccessKind end = copies_.grad_in_place(chunk) ? AccessKind::kUseEnd
                                                      : AccessKind::kGradClose;
  return moment + 1 < step.accesses.size() &&
         step.accesses[moment + 1] == Access{end, chunk} &&
         !step.compute_ns.empty() && step.compute_ns[moment] == 0;
}

bool SimulatedRank::UseOfGrad(const Trace& trace, size_t moment) const {
  const auto [kind, chunk] = trace[moment];
  if (moment + 1 == trace.size() || !copies_.grad_in_place(chunk)) return false;
  const Access& next = trace[moment + 1];
  return next.chunk == chunk &&
         ((kind == AccessKind::kUse && next.kind == AccessKind::kGradOpen) ||
          (kind == AccessKind::kUseEnd && next.kind == AccessKind::kGradClose));
}

Status SimulatedRank::Evaluate(const EvaluationPass& pass) {
  const StepTrace uses{pass.accesses, {}, {}};
  copies_.BeginEvaluation();
  for (size_t i = 0; i < pass.accesses.size(); ++i) {
    CASTOR_RETURN_IF_ERROR(Serve(uses, i, false));
    if (!pass.compute_ns.empty()) Compute(pass.compute_ns[i]);
  }
  copies_.EndEvaluation();
  return OkStatus();
}

void SimulatedRank::WaitOn(const SimEvent& ready, RunCause cause) {
  if (ready.done()) return;
  // -1: by the time the lane got here, there was nothing to wait for.
  const auto begin = std::make_shared<int64_t>(-1);
  trainer_.Run([this, begin, ready] {
    if (!ready.done()) *begin = loop_.now_ns();
  });
  trainer_.Wait(ready);
  trainer_.Run([this, begin, cause] {
    if (*begin < 0) return;
    SimulatedStall& stall = stalls_[static_cast<size_t>(cause)];
    ++stall.count;
    stall.ns += loop_.now_ns() - *begin;
  });
}

void SimulatedRank::Compute(int64_t ns) {
  if (ns == 0 || !timed_) return;
  trainer_.RunAsync([this, ns](const SimSource& source) {
    loop_.At(loop_.FromNow(ns), [this, ns, source] {
      compute_ns_ += ns;
      source.Complete();
    });
  });
}

void SimulatedRank::QueueCollective(SimLane& lane, Collective which,
                                    ChunkId chunk, Bytes bytes, int ranks) {
  StepTraffic& traffic = traffic_[chunk.index()];
  const LinkTraffic sent = {bytes / ranks * (ranks - 1), 1};
  if (which == Collective::kAllGather) {
    traffic.all_gather += sent;
    traffic.all_gather_steps += ranks - 1;
  } else {
    traffic.reduce_scatter += sent;
    traffic.reduce_scatter_steps += ranks - 1;
  }
  QueueExchange(lane, RingNs(which == Collective::kReduceScatter
                                 ? machine_->reduce_scatter
                                 : machine_->all_gather,
                             bytes, ranks));
}

void SimulatedRank::QueueExchange(SimLane& lane, int64_t ns) {
  if (!timed_) return;
  const size_t meeting = meetings_->own_ns.size();
  meetings_->own_ns.push_back(0);
  lane.RunAsync([this, meeting, ns](const SimSource& source) {
    Meet(meeting, ns, source);
  });
}

void SimulatedRank::Meet(size_t meeting, int64_t ns, const SimSource& source) {
  int64_t end_ns = loop_.now_ns();
  meetings_->own_ns[meeting] = end_ns;
  if (meeting < meetings_->other_ns.size()) {
    end_ns = std::max(end_ns, meetings_->other_ns[meeting]);
  }
  if (ns > 0) {
    end_ns = EventLoop::Later(std::max(end_ns, ranks_free_ns_), ns);
    ranks_free_ns_ = end_ns;
  }
  if (end_ns > loop_.now_ns()) {
    loop_.At(end_ns, [this, ns, source] {
      collectives_ns_ += ns;
      source.Complete();
    });
  } else if (engine_->world > 1 && !meetings_->comes_last) {
    // Others come when this rank has done what it can: its calls come first.
    loop_.Post([source] { source.Complete(); });
  } else {
    source.Complete();
  }
}

SimEvent SimulatedRank::Gather(ChunkId chunk, const SimEvent& after,
                               RunCause cause) {
  const StateKind kind = StateKind::kParam;
  ++traffic_[chunk.index()].gathers;
  ++traffic_[chunk.index()].fetches;
  const Bytes kept = moves_.bytes(chunk, kind);
  if (engine_->param_ranks == 1) {
    return moves_.Load(chunk, kind, kept, after, cause);
  }
  if (moves_.home(chunk, kind) == Tier::kDevice) {
    SimEvent gathered = AllGather(moves_.written(chunk, kind), chunk, after);
    moves_.AddReader(chunk, kind, gathered);
    return gathered;
  }
  return AllGather(moves_.Load(chunk, kind, kept, after, cause), chunk,
                   SimEvent());
}

SimEvent SimulatedRank::FetchShard(ChunkId chunk, const SimEvent& after,
                                   RunCause cause) {
  ++traffic_[chunk.index()].fetches;
  const StateKind kind = StateKind::kParam;
  return moves_.Load(chunk, kind, moves_.bytes(chunk, kind), after, cause);
}

SimEvent SimulatedRank::GatherFrom(const SimEvent& ready, ChunkId chunk,
                                   const SimEvent& after) {
  ++traffic_[chunk.index()].gathers;
  return AllGather(ready, chunk, after);
}

SimEvent SimulatedRank::AllGather(const SimEvent& ready, ChunkId chunk,
                                  const SimEvent& after) {
  comm_.Wait(after);
  comm_.Wait(ready);
  QueueCollective(comm_, Collective::kAllGather, chunk, Facts(chunk).gathered,
                  engine_->param_ranks);
  return comm_.Record();
}

SimEvent SimulatedRank::DirectReady(ChunkId chunk) {
  return moves_.written(chunk, StateKind::kParam);
}

void SimulatedRank::DirectUsed(ChunkId chunk, SimEvent last_use) {
  moves_.AddReader(chunk, StateKind::kParam, std::move(last_use));
}

// The one thing a step waits for.
void SimulatedRank::Agree() {
  comm_.Wait(reduce_.Record());
  if (CountsNorm()) {
    other_traffic_.norm += engine_->norm;
    QueueTraffic(device_, &wires_, Traffic::kFromDevice, engine_->norm);
  }
  const SimEvent fetched = device_.Record();
  if (CountsNorm()) QueueKernel(device_, engine_->norm);
  comm_.Wait(fetched);
  if (!updates_early_) comm_.Wait(host_.Record());
  comm_.Run([] {});
  // All words go out to be added, and a slice's sums to everybody.
  const int world = engine_->world;
  const int64_t words = engine_->agreed_words;
  const int64_t slice =
      words * (engine_->rank + 1) / world - words * engine_->rank / world;
  const Bytes bytes = Bytes(8) * words;
  if (world > 1) {
    other_traffic_.agreed += bytes;
    other_traffic_.agreement +=
        Bytes(8) * (words - slice + slice * (world - 1));
  }
  QueueExchange(comm_, RingNs(machine_->reduce_scatter, bytes, world) +
                           RingNs(machine_->all_gather, bytes, world));
  loop_.RunUntil(comm_.Record());
}

}  // namespace castor::internal
