// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_SIMULATED_RANK_H_
#define CASTOR_PLACEMENT_SIMULATION_SIMULATED_RANK_H_

// One rank that makes steps: what collectives/zero_engine.h queues for each
// access, for gradients and for the optimizer. Other ranks do the same at about
// the same time: a collective begins when the last of them comes. Owner thread
// only.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/simulation/gathered_copies.h"
#include "placement/simulation/shard_moves.h"
#include "placement/simulation/simulated_engine.h"
#include "placement/simulation/simulation_result.h"
#include "placement/simulation/step_traffic.h"
#include "placement/tier_model.h"
#include "placement/timeline/event_loop.h"
#include "placement/timeline/meetings.h"
#include "placement/timeline/sim_lane.h"
#include "placement/timeline/slot_pool.h"
#include "placement/timeline/wires.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"

namespace castor::internal {

class SimulatedRank final : private CopySource {
 public:
  // All outlive it.
  SimulatedRank(const SimulatedEngine* engine, const TierModel* machine,
                SimTrainer trainer,
                const std::optional<LinkModel>& device_memory,
                Meetings* meetings);
  // One for which nothing takes time: what is queued is over at once.
  SimulatedRank(const SimulatedEngine* engine, Meetings* meetings);

  // This is the plan of steps that are like this one. Both outlive the rank.
  void Know(const StepTrace& step, const Plan& plan) {
    known_step_ = &step;
    known_plan_ = &plan;
  }
  // Makes the next step, until its end is queued; `ended` is called when the
  // trainer's lane gets there. Infeasible as Simulate. REQUIRES: the trace is
  // one of the engine's chunks.
  Status MakeStep(const StepTrace& step, std::function<void()> ended);
  // Until all that was queued has run.
  void Finish() { loop_.RunAll(); }

  int64_t now_ns() const { return loop_.now_ns(); }
  const GatheredCopies::Counts& counts() const { return copies_.counts(); }
  // By RunCause, of the trainer's lane.
  const std::array<SimulatedStall, kRunCauses>& stalls() const {
    return stalls_;
  }
  // What was asked for since the last call, or the start: by ChunkId, and all
  // together with what is of no chunk.
  std::vector<StepTraffic> TakeTraffic(StepTraffic* all);
  int64_t reduce_scatters() const { return reduce_scatters_; }
  std::array<int64_t, kSimResources> busy_ns() const;
  Bytes gathered_peak() const { return copies_.peak(); }

 private:
  SimulatedRank(const SimulatedEngine* engine, const TierModel* machine,
                SimLane::Kind trainer, SimLane::Kind lanes,
                const std::optional<LinkModel>& device_memory,
                Meetings* meetings);

  struct Gradient {
    SimSlot slot;  // while open
    // When it is complete; none: when it is reduced.
    std::optional<SimEvent> ready;
    bool valid = false;    // its home holds a sum
    bool counted = false;  // its squares are in the norm
    bool updated = false;  // what it is for, before the step ends
  };
  // A lease of a home begins or ends before the moment.
  struct DirectLease {
    size_t moment = 0;
    ChunkId chunk;
    bool begins = false;
    bool outlasts = false;  // the end of its use in the trace
  };
  enum class Collective : uint8_t {
    kAllGather,
    kReduceScatter,
    kJoin,  // an all-gather of reduced slices
  };

  // CopySource.
  SimEvent Gather(ChunkId chunk, const SimEvent& after,
                  RunCause cause) override;
  SimEvent FetchShard(ChunkId chunk, const SimEvent& after,
                      RunCause cause) override;
  SimEvent GatherFrom(const SimEvent& ready, ChunkId chunk,
                      const SimEvent& after) override;
  // All ranks' shards of the chunk, of which the own is there since `ready`,
  // into a place that is free after `after`.
  SimEvent AllGather(const SimEvent& ready, ChunkId chunk,
                     const SimEvent& after);
  SimEvent DirectReady(ChunkId chunk) override;
  void DirectUsed(ChunkId chunk, SimEvent last_use) override;
  void Raise(ChunkId chunk) override { moves_.Raise(chunk); }
  bool cancellable() const override { return engine_->param_ranks == 1; }
  bool Cancel(ChunkId chunk) override { return moves_.Cancel(chunk); }

  bool CountsNorm() const { return engine_->norm > Bytes(0); }
  const SimulatedChunk& Facts(ChunkId chunk) const {
    return engine_->chunks[chunk.index()];
  }
  // Of a chunk's gradient, what this rank counts in the norm.
  Bytes Counted(ChunkId chunk) const {
    return Facts(chunk).gathered_grad / engine_->world;
  }
  Status Serve(const StepTrace& step, size_t moment, bool last_micro_batch);
  // What the step has recorded becomes the plan of the next one.
  Status PlanAnew(const StepTrace& step);
  // Whether the gradient that opens there is of nobody: zeros, for the others.
  bool OpensZeros(const StepTrace& step, size_t moment) const;
  // Whether the use that begins or ends there is of the chunk's gradient, which
  // is written over it and opens or closes next.
  bool UseOfGrad(const Trace& trace, size_t moment) const;
  // When what is where the chunk's gradient goes is not used any more.
  SimEvent PlaceUnused(ChunkId chunk);
  Status Evaluate(const EvaluationPass& pass);
  // The trainer's lane waits for a chunk, or for the place of a gradient.
  void WaitOn(const SimEvent& ready, RunCause cause);
  // The trainer's lane computes for so long.
  void Compute(int64_t ns);
  // When the place of the chunk's gradient, complete now, is free.
  Result<SimEvent> Reduce(ChunkId chunk, bool last_micro_batch);
  Result<SimEvent> Deposit(ChunkId chunk, bool at_home, const SimEvent& reduced,
                           bool squares);
  SimEvent DepositOnDevice(ChunkId chunk, bool at_home, const SimEvent& reduced,
                           bool squares);
  Result<SimEvent> DepositOnHost(ChunkId chunk, const SimEvent& reduced,
                                 bool squares);
  Status CountLeftSquares();
  void Agree();
  // A home that is held in place is read until its leases end.
  bool UpdatesEarly(ChunkId chunk, bool last_micro_batch) const {
    return updates_early_ && last_micro_batch &&
           !missing_grads_[chunk.index()] && held_in_place_[chunk.index()] == 0;
  }
  std::vector<DirectLease> DirectLeases(const StepTrace& step) const;
  // Leases of homes begin and end before this moment.
  void FollowLeases(size_t moment);
  bool Direct(ChunkId chunk) const {
    return engine_->problem.param_class[chunk.index()] == kNoSlotClass;
  }
  Status Update(ChunkId chunk);
  void UpdateOnDevice(ChunkId chunk);
  // Returns when the memory of `passing` may be reused: a gradient on the
  // device that does not go home, there once that is done.
  Result<SimEvent> UpdateOnHost(ChunkId chunk,
                                const SimEvent* passing = nullptr);
  Status Refresh(ChunkId chunk);
  // Of the chunk, among so many ranks, of what is `bytes` of all of them
  // together.
  void QueueCollective(SimLane& lane, Collective which, ChunkId chunk,
                       Bytes bytes, int ranks);
  void QueueExchange(SimLane& lane, int64_t ns);
  void Meet(size_t meeting, int64_t ns, const SimSource& source);
  // A pass of the host over the chunk's gradient.
  void QueueSum(ChunkId chunk, Bytes bytes);
  // A kernel of the engine on the device.
  void QueueKernel(SimLane& lane, Bytes traffic) {
    QueueTraffic(lane, &wires_, Traffic::kDevice, traffic);
  }

  const SimulatedEngine* const engine_;
  const TierModel* const machine_;
  Meetings* const meetings_;
  const bool timed_;
  const StepTrace* known_step_ = nullptr;
  const Plan* known_plan_ = nullptr;
  EventLoop loop_;
  Wires wires_;
  std::vector<StepTraffic> traffic_;  // by ChunkId
  StepTraffic other_traffic_;         // of no chunk
  ShardMoves moves_;
  GatheredCopies copies_;
  SimLane trainer_;
  SimLane comm_;
  SimLane reduce_;
  SimLane host_;
  SimLane device_;
  std::vector<int32_t> held_in_place_;  // by ChunkId: leases of its home
  bool updates_early_ = false;          // in this step
  std::vector<bool> missing_grads_;     // by ChunkId: some, in this step
  std::vector<DirectLease> leases_;     // of this step, by their moments
  size_t leases_followed_ = 0;
  std::vector<Gradient> grads_;  // by ChunkId
  std::array<SimulatedStall, kRunCauses> stalls_;
  int64_t reduce_scatters_ = 0;
  int64_t compute_ns_ = 0;
  int64_t collectives_ns_ = 0;
  // What ranks exchange goes one after the other: it shares the way to them.
  int64_t ranks_free_ns_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_SIMULATION_SIMULATED_RANK_H_
