// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ENGINE_RECORD_H_
#define CASTOR_COLLECTIVES_ENGINE_ENGINE_RECORD_H_

// What a run's record says of an engine: its events, and the documents with
// which others plan and simulate the run again. Nothing is written where the
// options have no recorder. All parts of the engine (zero_engine_parts.h) tell
// it what they queue. Owner thread only.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/engine/engine_model.h"
#include "collectives/engine/engine_progress.h"
#include "collectives/engine/memory/engine_memory.h"
#include "offload/lane.h"
#include "offload/memory/lease_arena.h"
#include "placement/homes/homes_file.h"
#include "placement/run_event.h"
#include "placement/state_kind.h"
#include "placement/trace/trace_file.h"

namespace castor::internal {

class EngineRecord {
 public:
  // All outlive this.
  EngineRecord(const EngineModel& model, const StepProgress& progress,
               const EngineMemory& memory)
      : model_(model), progress_(progress), memory_(memory) {}

  // Of the access served last; while a step ends, of its last one; else -1.
  int64_t Moment() const;
  // The same for collectives, where all ranks have it in common; else -1.
  int64_t SharedMoment() const { return model_.takes_turns() ? -1 : Moment(); }
  RunEvent EventFor(RunEventKind kind, ChunkId chunk, RunCause cause) const;
  // Notes the time at which `lane` gets here, as the begin or the end of
  // `event`; the end records it.
  void Begin(Lane& lane, const std::shared_ptr<RunEvent>& event) const {
    Note(lane, event, true);
  }
  void End(Lane& lane, const std::shared_ptr<RunEvent>& event) const {
    Note(lane, event, false);
  }
  void BeginLease(Lane& lane, int32_t lease, Bytes size);
  void EndLease(Lane& lane, int32_t lease);
  void EndStep() const;
  void Mark(std::string_view words) const;

  void DescribeRank() const;
  // Where states are at home from the next step on, and how full tiers are.
  void DescribeHomes() const;
  // Of steps 1, 2, 4, 8 and so on, but for a trace that is as before.
  bool describes_trace() const;
  void DescribeTrace(const TraceFile& trace);
  // Why a state of a chunk is at home where it is.
  std::string WhyHome(ChunkId chunk, StateKind state) const;
  std::vector<std::string> PlacedByRules() const;

 private:
  void Note(Lane& lane, const std::shared_ptr<RunEvent>& event,
            bool begin) const;
  // REQUIRES: a recorder.
  void AddDocument(std::string text) const;
  std::vector<HomesOfChunk> Homes() const;

  const EngineModel& model_;
  const StepProgress& progress_;
  const EngineMemory& memory_;
  std::map<int32_t, std::shared_ptr<RunEvent>> leases_;  // that are open
  int64_t described_trace_ = 0;                          // digest of its text
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_ENGINE_RECORD_H_
