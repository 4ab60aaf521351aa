// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_SLOT_REPLAY_H_
#define CASTOR_PLACEMENT_POLICY_SLOT_REPLAY_H_

// Serves a trace on demand, slot by slot, for the policies' .cc files: each of
// them says only which copy goes when a slot is wanted. Thread-compatible.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor::internal {

inline constexpr int64_t kNeverUsed = std::numeric_limits<int64_t>::max();

// What it costs to drop the copy of `chunk`. The copy goes whose next use is
// furthest away for its cost, of equal ones the one that has been idle longest.
// So one that costs nothing goes first, and one of infinite cost last.
// `next_use`: the moment of its next use, counted on into the next step where
// the copy is valid there, or kNeverUsed, which must cost nothing.
using DropCost = std::function<double(ChunkId chunk, int64_t next_use)>;

struct DemandFetch {
  ChunkId chunk;
  ChunkId victim;           // dropped for it; not valid: the slot was free
  int64_t use = 0;          // moment that needs it
  int64_t idle_since = -1;  // its slot: the last access of that; -1: none yet
  // The access that took the place of the chunk's copy before; -1: none did.
  int64_t dropped_at = -1;

  // The access after which it may begin.
  int64_t not_before() const { return std::max(idle_since, dropped_at); }
};

// A copy that makes room for what is no copy.
struct RoomDrop {
  ChunkId chunk;
  size_t slice = 0;  // of the plan: 2 i before the access at i, 2 i + 1 after
};

struct ServedTrace {
  std::vector<DemandFetch> fetches;  // in order of use
  std::vector<RoomDrop> drops;       // in order
  // Copies that are there at the end and still valid then; ids rise.
  std::vector<ChunkId> survivors;
};

class SlotReplay {
 public:
  // The trace and the problem outlive it. REQUIRES: CheckTrace and CheckFits of
  // placement/policy/trace_pins.h are ok.
  SlotReplay(const Trace& trace, const PlanProblem& problem, DropCost cost);

  // One step that begins with the copies `kept`. REQUIRES: there is room for
  // them.
  ServedTrace Run(const std::vector<ChunkId>& kept);

 private:
  struct Slot {
    ChunkId copy;             // not valid: no copy
    int64_t idle_since = -1;  // moment of its last access; -1: none yet
    size_t slot_class = 0;
  };

  // Sorts a slot by what was true of it when it was queued. Slots of a class
  // lie one after the other.
  struct Queued {
    int64_t next_use = 0;
    int64_t idle_since = 0;
    Slot* slot = nullptr;
  };
  // On top the slot used furthest away, then the one idle longest, then the
  // first.
  struct GoesLater {
    bool operator()(const Queued& a, const Queued& b) const;
  };
  using SlotQueue = std::priority_queue<Queued, std::vector<Queued>, GoesLater>;

  int64_t NextUse(size_t chunk, int64_t moment);
  // Of a slot without a copy, which nothing blocks any more.
  void Free(Slot& slot, int64_t moment);
  // Nobody uses the slot's copy from `moment` on.
  void Idle(Slot& slot, int64_t moment);
  bool IsIdle(const Queued& queued) const;
  Slot* VictimSlot(size_t slot_class, int64_t moment);
  // The copy that is dropped, none where there was none.
  ChunkId Empty(Slot& slot);
  Slot& FetchSlot(size_t slot_class, int64_t moment);
  // A slot for what is no copy; what is dropped for it goes in `slice`.
  Slot& BlockSlot(size_t slot_class, int64_t moment, size_t slice);
  // As many slots of each class as are taken then.
  void Untake(size_t slot_class, int64_t moment, int64_t taken);
  void Take(size_t slot_class, int64_t moment, int64_t taken);
  // What was written over is no copy any more.
  void DropCopy(size_t chunk, int64_t moment);
  void Serve(int64_t moment);

  const Trace& trace_;
  const PlanProblem& problem_;
  const DropCost cost_;
  std::vector<std::vector<int64_t>> uses_;  // by chunk, moments of kUse
  std::vector<std::vector<Slot>> slots_;    // by class; never resized in a run
  // By class, the one that has been idle longest first.
  std::vector<std::set<std::pair<int64_t, Slot*>>> free_;
  // By class and the cost of dropping their copies. A slot whose copy was used
  // or dropped since stays until it is on top.
  std::vector<std::map<double, SlotQueue>> idle_;
  std::vector<std::vector<Slot*>> taken_;  // by class
  std::vector<Slot*> at_;                  // by chunk, of its copy
  std::vector<Slot*> grad_at_;             // by chunk, of its gradient
  std::vector<int> pins_;
  std::vector<int64_t> dropped_at_;  // by chunk, for what is no copy
  std::vector<size_t> next_;         // by chunk, cursor into uses_
  ServedTrace served_;
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_POLICY_SLOT_REPLAY_H_
