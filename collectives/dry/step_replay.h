// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_DRY_STEP_REPLAY_H_
#define CASTOR_COLLECTIVES_DRY_STEP_REPLAY_H_

// A trainer that makes the step of a trace: it holds chunks, hands gradients
// back and computes when the trace says so, by the calls of any trainer
// (collectives/zero_engine.h). A trace tells neither where a micro-batch begins
// nor which gradients wait for its end; both follow from what is opened again,
// and from which parameters lack a gradient. Owner thread only.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "collectives/zero_engine.h"
#include "offload/lane.h"
#include "offload/lanes/solo_executor.h"
#include "offload/twin/simulated_device.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"

namespace castor {

struct StepReplayOptions {
  // Takes the time that traces tell for computing; null: none of it. Both
  // outlive the replay.
  SimulatedDevice* device = nullptr;
  // Runs what is queued after every access, so that a step's work does not pile
  // up where nothing takes time; null: whoever waits runs it.
  SoloExecutor* after_access = nullptr;
  bool grads_in_place = false;  // as the engine's options have it
  // Ranks reduce chunks in turns (placement/trace/reduction_turns.h).
  bool takes_turns = false;
  // The trainer lets the engine guess updates in each step.
  bool guesses = false;
};

class StepReplay {
 public:
  // All outlive the replay. REQUIRES: the engine is sealed, and was given these
  // parameters.
  StepReplay(ZeroEngine* engine, std::span<const ParamSpec> params, Lane* lane,
             const StepReplayOptions& options);
  StepReplay(const StepReplay&) = delete;
  StepReplay& operator=(const StepReplay&) = delete;

  // All of the step but the call of Step. REQUIRES: ValidateStep accepts the
  // trace for the engine's chunks.
  Status MakeAccesses(const StepTrace& step);
  // For how long the lane computes, by what is queued so far.
  int64_t compute_ns() const { return compute_ns_; }

 private:
  // A use whose lease goes on; `begin`: its moment.
  struct Use {
    size_t begin = 0;
    ParamLease lease;
  };
  enum class Gradient : uint8_t { kNone, kOpen, kReady };

  Status BeginMicroBatch(bool last);
  Status Serve(size_t moment);
  Status OpenGrad(ChunkId chunk);
  // Of all parameters that have one.
  Status OpenAll(ChunkId chunk);
  // All of the chunk is handed back, unless its end is that of the micro-batch.
  Status CloseGrad(ChunkId chunk);
  Status HandBack(ChunkId chunk);
  Status Evaluate(const EvaluationPass& pass);
  Result<ParamLease> Hold(ChunkId chunk);
  void Compute(int64_t ns);
  // Whether the use that begins or ends there is of the chunk's gradient, which
  // is written over it: the engine makes it.
  bool UseOfGrad(const Trace& trace, size_t moment) const;
  // Whether the gradient that opens there is of nobody: it opens and ends at
  // once, and nothing is computed for it. The engine opens it, as zeros.
  bool OpensZeros(size_t moment) const;
  // Ends the leases that end by themselves before the access.
  void EndLeases(size_t moment);
  void FindMissing();

  ZeroEngine* const engine_;
  const std::span<const ParamSpec> params_;
  Lane* const lane_;
  const StepReplayOptions options_;
  int64_t compute_ns_ = 0;

  // Of the step that is made.
  const StepTrace* step_ = nullptr;
  bool flushing_ = false;            // what is open is reduced by the next call
  std::vector<bool> lacks_;          // by ChunkId: some gradient is missing
  std::vector<bool> missing_;        // by ParamId
  std::vector<Gradient> gradients_;  // by ChunkId
  std::vector<std::deque<Use>> uses_;  // by ChunkId, the first one ends first
  std::vector<Use> outlasting_;        // that ended in the trace
  // Leases that end by themselves, by when they do, and how many of them have.
  std::vector<LeaseEnd> own_ends_;
  size_t ended_ = 0;
  std::vector<bool> ends_itself_;  // by moment of a use
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_DRY_STEP_REPLAY_H_
