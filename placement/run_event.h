// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_RUN_EVENT_H_
#define CASTOR_PLACEMENT_RUN_EVENT_H_

// What happened in a run, one fixed-size value per happening, each with its
// cause. One schema feeds the report, the exports, replay, the simulator and
// the tests. Values.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/tier.h"
#include "placement/state_kind.h"

namespace castor {

enum class RunEventKind : uint8_t {
  kStep,           // one whole step, begin to end of the trainer's calls
  kUse,            // the trainer held a chunk's parameters
  kTransfer,       // bytes moved from one tier to another
  kGather,         // a chunk made whole; bytes: from others, 0 if alone
  kReduceScatter,  // of a gradient chunk; bytes: sent to others
  kUpdate,         // the optimizer's pass over one chunk's shard
  kStall,          // a compute lane waited for a chunk
  kRelease,        // instant: a gathered copy was dropped
  kTierBytes,      // instant: `bytes` are in use on tier `to`
  kLease,          // the trainer borrowed `bytes` of the device pool
  kDivergence,     // instant: the step departed from the trace
};
inline constexpr int kRunEventKinds = 11;

constexpr std::string_view RunEventKindName(RunEventKind kind) {
  switch (kind) {
    case RunEventKind::kStep:
      return "step";
    case RunEventKind::kUse:
      return "use";
    case RunEventKind::kTransfer:
      return "transfer";
    case RunEventKind::kGather:
      return "gather";
    case RunEventKind::kReduceScatter:
      return "reduce-scatter";
    case RunEventKind::kUpdate:
      return "update";
    case RunEventKind::kStall:
      return "stall";
    case RunEventKind::kRelease:
      return "release";
    case RunEventKind::kTierBytes:
      return "tier bytes";
    case RunEventKind::kLease:
      return "lease";
    case RunEventKind::kDivergence:
      return "divergence";
  }
  return "unknown";
}

// Why it happened. For a stall: what the lane waited for.
enum class RunCause : uint8_t {
  kNone,
  kDemand,     // an access found no copy: fetched when asked for
  kPrefetch,   // fetched ahead by the plan; a stall: it came too late
  kRoom,       // dropped to make room for another
  kStale,      // dropped because the optimizer changed the parameters
  kGradient,   // a gradient on its way to its home; a stall: no slot yet
  kOptimizer,  // states on their way to or from the optimizer
  kRefresh,    // updated parameters on their way to replicated homes
  kStart,      // initial values
  kGuess,      // an update before the norm is known, which Step may drop
};
inline constexpr int kRunCauses = 10;

// Whether the cause is an update, at Step or before.
constexpr bool IsOfUpdate(RunCause cause) {
  return cause == RunCause::kOptimizer || cause == RunCause::kGuess;
}

constexpr std::string_view RunCauseName(RunCause cause) {
  switch (cause) {
    case RunCause::kNone:
      return "none";
    case RunCause::kDemand:
      return "demand";
    case RunCause::kPrefetch:
      return "prefetch";
    case RunCause::kRoom:
      return "room";
    case RunCause::kStale:
      return "stale";
    case RunCause::kGradient:
      return "gradient";
    case RunCause::kOptimizer:
      return "optimizer";
    case RunCause::kRefresh:
      return "refresh";
    case RunCause::kStart:
      return "start";
    case RunCause::kGuess:
      return "guess";
  }
  return "unknown";
}

// How often and how long lanes waited, of one cause.
struct StallSum {
  int64_t count = 0;
  int64_t ns = 0;

  friend bool operator==(const StallSum&, const StallSum&) = default;
};

struct RunEvent {
  int64_t begin_ns = 0;  // on the run's clock, one for all ranks of a process
  int64_t end_ns = 0;    // never before begin_ns; equal to it for an instant
  int64_t bytes = 0;     // never negative
  int32_t rank = 0;
  int32_t step = 0;     // counts from 1; 0 before the first
  int32_t moment = -1;  // position in the step's trace, -1 where none
  int32_t chunk = -1;   // -1 where none
  RunEventKind kind = RunEventKind::kStep;
  RunCause cause = RunCause::kNone;
  StateKind state = StateKind::kParam;
  Tier from = Tier::kDevice;
  Tier to = Tier::kDevice;

  friend bool operator==(const RunEvent&, const RunEvent&) = default;
};

// What a reader needs to know about a rank before its events.
struct RunChunkInfo {
  int64_t bytes = 0;   // of the whole chunk, parameter dtype
  std::string params;  // names, comma separated; the last may count others
};
struct RunRankInfo {
  int32_t rank = 0;
  int32_t world = 1;
  int32_t stage = 3;
  int64_t budget_bytes[3] = {0, 0, 0};  // by tier; 0: none given
  std::vector<RunChunkInfo> chunks;     // by ChunkId
  StateNames states = {};               // of what its optimizer keeps
};

// A pinned arena as it was when this was recorded, at the run's end in most
// cases; offload/memory/pinned_arena.h says what the numbers mean.
struct RunArenaInfo {
  int32_t rank = 0;
  std::string name;       // what it serves, for example "staging"
  std::string allocator;  // "castor", "jemalloc 5.3.0"
  bool locked = false;
  bool bound = false;
  int64_t budget_bytes = 0;
  int64_t in_use_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t requested_bytes = 0;
  int64_t buffers = 0;
  int64_t allocated = 0;
  int64_t refused = 0;
  int64_t live_bytes = 0;
  int64_t active_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t retained_bytes = 0;
  int64_t metadata_bytes = 0;

  friend bool operator==(const RunArenaInfo&, const RunArenaInfo&) = default;
};

// From this moment on, until the next change, one more slot saves so much.
struct RunSlotPrice {
  int32_t moment = 0;
  double price = 0;  // not negative

  friend bool operator==(const RunSlotPrice&, const RunSlotPrice&) = default;
};

// What a plan with a proof says of the slots of one size
// (placement/exact/exact_policy.h); costs are of one step's fetches.
struct RunPlanClass {
  int64_t slot_bytes = 0;
  int64_t slots = 0;
  int64_t shard_slots = 0;  // of these, those that hold copies of shards
  int64_t shards = 0;       // that they hold at most
  double cost = 0;
  double lower_bound = 0;
  bool optimal = false;
  bool priced = false;               // `prices` is all of them
  std::vector<RunSlotPrice> prices;  // by rising moments; 0 before the first

  friend bool operator==(const RunPlanClass&, const RunPlanClass&) = default;
};

struct RunPlanInfo {
  int32_t rank = 0;
  int32_t step = 0;         // after which it was made
  bool in_seconds = false;  // costs; else in links that fetches cross
  int32_t moments = 0;      // of the step
  std::vector<RunPlanClass> classes;

  friend bool operator==(const RunPlanInfo&, const RunPlanInfo&) = default;
};

// Where a rank's states are at home from a step on: as its engine was sealed,
// and each time that it was resealed.
struct RunHomesInfo {
  int32_t rank = 0;
  int32_t step = 0;                         // from which on
  int64_t budget_bytes[3] = {};             // by tier; 0: none given
  int64_t home_bytes[kStateKinds][3] = {};  // of each state, by tier

  friend bool operator==(const RunHomesInfo&, const RunHomesInfo&) = default;
};

// What the trainer wanted to be known of one moment.
struct RunMark {
  int64_t at_ns = 0;  // on the run's clock
  int32_t rank = 0;
  int32_t step = 0;
  std::string words;  // at most kMostMarkBytes

  friend bool operator==(const RunMark&, const RunMark&) = default;
};
inline constexpr size_t kMostMarkBytes = 255;

// A document of this project that describes the run, as text with a "schema":
// the layout (chunk/layout_file.h), the engine's options (castor.config/1), the
// machine (placement/machine/tier_model_file.h), the trace of a step
// (placement/trace/trace_file.h), homes (placement/homes/homes_file.h).
struct RunDocument {
  int32_t rank = 0;
  int32_t step = 0;  // from which on it holds
  std::string text;

  friend bool operator==(const RunDocument&, const RunDocument&) = default;
};

// Where events go. Implementations are thread-safe and never block for long.
// Events come in any order of time: most are recorded when they end.
class RunRecorder {
 public:
  virtual ~RunRecorder() = default;
  // Once per rank, before its first event.
  virtual void AddRank(const RunRankInfo& info) = 0;
  virtual void Record(const RunEvent& event) = 0;
  // Any time after the rank was added; of several for one rank and name, the
  // last one holds. A recorder need not keep them.
  virtual void AddArena(const RunArenaInfo&) {}
  // A plan that came with a proof; of several of one rank, the last one holds.
  virtual void AddPlan(const RunPlanInfo&) {}
  // In order of steps. Each holds until the next one of its rank.
  virtual void AddHomes(const RunHomesInfo&) {}
  virtual void AddMark(const RunMark&) {}
  // A text as the last one of its schema, of whichever rank, is not kept again.
  virtual void AddDocument(const RunDocument&) {}
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_RUN_EVENT_H_
