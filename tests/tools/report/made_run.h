// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_REPORT_MADE_RUN_H_
#define CASTOR_TESTS_TOOLS_REPORT_MADE_RUN_H_

// Runs made by hand, whose statistics are known.

#include <cstdint>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "offload/record/record_reader.h"
#include "placement/run_event.h"

namespace castor {

// Adds events to a record; times in microseconds, so that tests read well.
class MadeRun {
 public:
  // `ranks` ranks with `chunks` chunks of 1000 bytes and a device budget of
  // 100 bytes.
  explicit MadeRun(int ranks, int chunks = 4) {
    for (int rank = 0; rank < ranks; ++rank) {
      RunRankInfo info;
      info.rank = rank;
      info.world = ranks;
      info.budget_bytes[0] = 100;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        info.chunks.push_back({1000, "layer." + std::to_string(chunk)});
      }
      record.ranks.push_back(info);
    }
  }

  // The events that follow are of this rank and step.
  MadeRun& At(int32_t rank, int32_t step) {
    rank_ = rank;
    step_ = step;
    return *this;
  }
  // The record ends here, before the run did.
  MadeRun& Cut() {
    record.completeness = Status(ErrorCode::kStoppedEarly, "cut");
    return *this;
  }
  MadeRun& Step(int64_t begin, int64_t end) {
    Add(RunEventKind::kStep, begin, end);
    return *this;
  }
  MadeRun& Move(Tier from, Tier to, int64_t begin, int64_t end, int64_t bytes,
                RunCause cause = RunCause::kPrefetch, int32_t chunk = 0) {
    RunEvent& event = Add(RunEventKind::kTransfer, begin, end);
    event.from = from;
    event.to = to;
    event.bytes = bytes;
    event.cause = cause;
    event.chunk = chunk;
    return *this;
  }
  MadeRun& Gather(int32_t chunk, int64_t begin, int64_t end, int64_t bytes,
                  RunCause cause = RunCause::kPrefetch) {
    RunEvent& event = Add(RunEventKind::kGather, begin, end);
    event.chunk = chunk;
    event.bytes = bytes;
    event.cause = cause;
    return *this;
  }
  MadeRun& Stall(RunCause cause, int32_t chunk, int64_t begin, int64_t end) {
    RunEvent& event = Add(RunEventKind::kStall, begin, end);
    event.cause = cause;
    event.chunk = chunk;
    return *this;
  }
  MadeRun& Use(int32_t chunk, int64_t begin, int64_t end) {
    Add(RunEventKind::kUse, begin, end).chunk = chunk;
    return *this;
  }
  MadeRun& Update(int32_t chunk, int64_t begin, int64_t end,
                  RunCause cause = RunCause::kNone) {
    RunEvent& event = Add(RunEventKind::kUpdate, begin, end);
    event.chunk = chunk;
    event.cause = cause;
    return *this;
  }
  MadeRun& Release(int32_t chunk, int64_t at,
                   RunCause cause = RunCause::kRoom) {
    RunEvent& event = Add(RunEventKind::kRelease, at, at);
    event.chunk = chunk;
    event.cause = cause;
    return *this;
  }
  MadeRun& TierBytes(Tier tier, int64_t at, int64_t bytes) {
    RunEvent& event = Add(RunEventKind::kTierBytes, at, at);
    event.to = tier;
    event.bytes = bytes;
    return *this;
  }
  // Of the rank At names; `budget_bytes`, and less of everything else.
  MadeRun& Arena(const std::string& name, int64_t budget_bytes) {
    RunArenaInfo arena;
    arena.rank = rank_;
    arena.name = name;
    arena.allocator = "jemalloc 5.3.0";
    arena.locked = rank_ == 0;
    arena.budget_bytes = budget_bytes;
    arena.peak_bytes = budget_bytes / 2;
    arena.live_bytes = budget_bytes / 4;
    arena.active_bytes = budget_bytes / 4 + 1024;
    arena.resident_bytes = budget_bytes / 2 + 1024;
    arena.allocated = 40;
    arena.refused = 1;
    record.arenas.push_back(arena);
    return *this;
  }
  MadeRun& Divergence(int64_t at) {
    Add(RunEventKind::kDivergence, at, at);
    return *this;
  }

  RunRecord record;

 private:
  RunEvent& Add(RunEventKind kind, int64_t begin, int64_t end) {
    RunEvent event;
    event.kind = kind;
    event.rank = rank_;
    event.step = step_;
    event.begin_ns = begin * 1000;
    event.end_ns = end * 1000;
    return record.events.emplace_back(event);
  }

  int32_t rank_ = 0;
  int32_t step_ = 1;
};

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_REPORT_MADE_RUN_H_
