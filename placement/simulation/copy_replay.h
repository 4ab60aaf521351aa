// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_COPY_REPLAY_H_
#define CASTOR_PLACEMENT_SIMULATION_COPY_REPLAY_H_

// Which chunks a run makes whole, and how many slots it holds at most, known
// without a run: what the simulator's rank moves
// (simulation/gathered_copies.h), access by access, where no move takes time
// and each is only counted. Thread-compatible.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/simulation/gathered_copies.h"
#include "placement/timeline/event_loop.h"
#include "placement/trace.h"

namespace castor {

class CopyReplay final : private internal::CopySource {
 public:
  // `slot_bytes` by class of the problem; the problem outlives this.
  CopyReplay(const PlanProblem& problem, std::span<const Bytes> slot_bytes);
  CopyReplay(const CopyReplay&) = delete;
  CopyReplay& operator=(const CopyReplay&) = delete;

  // As if a step of the trace had been planned so: brings what the plan wants
  // to be there when the next one begins.
  void Adopt(const Trace& trace, const Plan& plan);
  // One step, from its first access to the moment before the next one's: by the
  // plan that was adopted, and on demand where there is none. `refreshed`: the
  // chunks that take a slot each, one after the other, once the step is over.
  // REQUIRES: the trace is one of a step, that of the plan if there is one, and
  // no class has fewer slots than it pins.
  void Step(const Trace& trace, std::span<const ChunkId> refreshed);

  struct Counts {
    std::vector<int64_t> gathers;  // by ChunkId
    std::vector<int64_t> loads;    // of what this rank keeps of it, from home
  };
  // Since the last call, or the start.
  Counts TakeCounts();
  // Of these slots together, since the start.
  Bytes peak_bytes() const { return copies_.peak(); }

 private:
  // CopySource: all is there at once, and nothing is left to take back.
  internal::SimEvent Gather(ChunkId chunk, const internal::SimEvent& after,
                            RunCause cause) override;
  internal::SimEvent FetchShard(ChunkId chunk, const internal::SimEvent& after,
                                RunCause cause) override;
  internal::SimEvent GatherFrom(const internal::SimEvent& ready, ChunkId chunk,
                                const internal::SimEvent& after) override;
  internal::SimEvent DirectReady(ChunkId) override { return {}; }
  void DirectUsed(ChunkId, internal::SimEvent) override {}
  void Raise(ChunkId) override {}
  bool cancellable() const override { return false; }
  bool Cancel(ChunkId) override { return false; }

  void Serve(const Access& access);

  const PlanProblem& problem_;
  Counts counts_;
  std::vector<internal::SimSlot> grads_;  // by ChunkId, while open
  internal::GatheredCopies copies_;
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_SIMULATION_COPY_REPLAY_H_
