// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_MANAGER_H_
#define CASTOR_OFFLOAD_MEMORY_MANAGER_H_

// The gathered slots of one rank and what is in them: copies of chunks, kept,
// fetched ahead and dropped as the plan says, and open gradients. It records
// the trace of every step, has it planned, and serves accesses that depart from
// it on demand; decisions follow accesses, never the clock, so ranks that make
// the same accesses make the same moves.
//
// Some of the slots may hold copies of this rank's shards instead, where the
// plan says so: gathers then send from there what they would fetch. Whoever
// needs a slot that the plan did not foresee gets one that holds gathered
// copies first, then one of these.
//
// A lease ends where its holder ends it, which ranks need not do alike: see
// MemoryManagerOptions::own_lease_ends, and memory_manager_ends.cc.
//
// A copy goes through the states of chunk/layout/chunk_state.h. Slots are
// reused by events: dropping a copy waits for nothing, and its next user waits
// for the work that still reads it. How a copy is filled is the business of a
// ChunkSource. Owner thread only.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_state.h"
#include "offload/lane.h"
#include "offload/memory/tier_pool.h"
#include "offload/shards/shard_places.h"
#include "placement/exact/exact_policy.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"
#include "placement/traffic_book.h"

namespace castor {

// Fills gathered slots. All methods are called on the owner thread, only queue
// work, and change nothing of the manager.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  // Fills `slot` with the chunk's parameters once slot.free_after is done; the
  // event says when they are there. `moment` is the access that is served when
  // it is asked for, before the step's first one the access that it is for, and
  // -1 in an evaluation.
  virtual Event Gather(ChunkId chunk, const Slot& slot, RunCause cause,
                       int64_t moment) = 0;
  // Copies this rank's shard of the chunk to `to` once `after` is done; the
  // event says when it is there. Only asked where the problem lets shards be
  // kept (PlanProblem::shard_cost), as the next one.
  virtual Event FetchShard(ChunkId, std::byte* /*to*/, const Event& /*after*/,
                           RunCause) {
    return Event();
  }
  // As Gather, of a chunk whose shard is at `shard` once `ready` is done.
  virtual Event GatherFrom(const std::byte* /*shard*/, const Event& /*ready*/,
                           ChunkId chunk, const Slot& slot, RunCause cause,
                           int64_t moment) {
    return Gather(chunk, slot, cause, moment);
  }
  // A chunk whose home is the whole of it on the device: where it is, and since
  // when its contents are valid.
  virtual std::byte* DirectData(ChunkId chunk) = 0;
  virtual Event DirectReady(ChunkId chunk) = 0;
  virtual void DirectUsed(ChunkId chunk, Event last_use) = 0;

  // Whether a Gather of the chunk is nobody's affair but this rank's: then one
  // that is fetched ahead may be taken back. Must not change.
  virtual bool Cancellable(ChunkId) const { return false; }
  // Takes the chunk's last Gather back. True: nothing of it has reached the
  // slot, nor will, so that the slot is free once its free_after is done. False
  // where it has begun. REQUIRES: Cancellable, and it was of kPrefetch.
  virtual bool Cancel(ChunkId) { return false; }
  // A lane waits for the chunk's last Gather, of kPrefetch, now.
  virtual void Raise(ChunkId) {}

  // Where gathers are made by all ranks: each of `words` becomes the least that
  // any rank has in its place. Blocks; all ranks ask at the same accesses.
  virtual Status LeastOfRanks(std::span<int64_t> /*words*/) {
    return OkStatus();
  }
  // Whether no other rank waits for gathers of this rank: then a use that this
  // rank refuses is refused, and nothing else.
  virtual bool DecidesAlone() const { return false; }
  // This rank cannot go on, whatever others do. Not asked of a rank that
  // decides alone.
  virtual void Failed(const Status&) {}
};

struct MemoryManagerOptions {
  TierPool* device = nullptr;
  // Slot classes of the problem are the first classes of the device pool, and
  // nothing else takes slots of them.
  PlanProblem problem;
  PlanPolicy policy = PlanPolicy::kAuto;
  ChunkSource* source = nullptr;
  const Clock* clock = nullptr;
  RunRecorder* recorder = nullptr;  // may be null
  TrafficBook* traffic = nullptr;   // counts gathers and fetches; may be null
  Log* log = nullptr;
  int32_t rank = 0;
  // The plan of a step of these accesses, where somebody has made it already;
  // both outlive the manager.
  const Trace* planned = nullptr;
  const Plan* plan = nullptr;
  // Chunks, by ChunkId, whose gradients each have a slot to themselves where
  // accesses are not those of a plan: copies leave so many alone. So the same
  // uses make the same moves, whatever gradients are open. Empty: none have.
  std::vector<bool> grad_slots_kept;
  // The end of a lease is its holder's own affair: ranks need not end leases
  // alike, and a lease may outlive its step. A chunk counts as used until all
  // ranks have ended that use, as far as they are asked: in the recorded step,
  // and where a slot is needed. From then on as in that step. What is dropped
  // while a lease is on it stays there until the lease ends.
  bool own_lease_ends = false;
  // Where all slots of a class are held, it gets one more, on all ranks. Else
  // that is an error.
  bool grow_slots = false;
  // Adds a slot of the class to the device's pool; empty: that is impossible.
  std::function<Status(int32_t slot_class)> add_slot = nullptr;
};

// An access that the trace learns of later: it comes behind the step's first
// `after` accesses.
struct LateAccess {
  size_t after = 0;
  AccessKind kind = AccessKind::kGradOpen;
  ChunkId chunk;
};

struct MemoryManagerStats {
  int64_t gathers = 0;
  // Homes that were read for these, or for copies of shards.
  int64_t fetches = 0;
  int64_t prefetched_fetches = 0;
  int64_t prefetched_gathers = 0;
  int64_t cancelled_gathers = 0;  // of these, taken back before they began
  int64_t releases = 0;           // of these, too
  int64_t divergences = 0;
  int64_t grown_slots = 0;  // by which the step's need was underestimated
  // That took the place of those on lease for longer than planned.
  int64_t extra_slots = 0;
};

class MemoryManager;

// A chunk's parameters on the device for work on one lane, pinned until the
// release, which records an event on that lane and waits for nothing. The
// manager and the lanes outlive it. Move-only.
class ChunkPin {
 public:
  ChunkPin() = default;
  ChunkPin(ChunkPin&& other) noexcept
      : manager_(std::exchange(other.manager_, nullptr)),
        lane_(other.lane_),
        chunk_(other.chunk_),
        traced_(other.traced_),
        data_(std::exchange(other.data_, nullptr)),
        use_(other.use_),
        begin_ns_(std::move(other.begin_ns_)),
        others_(std::move(other.others_)) {}
  ChunkPin& operator=(ChunkPin&& other) noexcept;
  ~ChunkPin() { Release(); }

  std::byte* data() const { return data_; }
  ChunkId chunk() const { return chunk_; }
  // Whether its begin is in the step's trace.
  bool traced() const { return traced_; }
  // Work on this lane uses the chunk too, so the release records an event there
  // as well.
  void AlsoUsedOn(Lane& lane);
  void Release() {
    if (manager_ != nullptr) GiveBack();
  }

 private:
  friend class MemoryManager;

  void GiveBack();

  MemoryManager* manager_ = nullptr;
  Lane* lane_ = nullptr;
  ChunkId chunk_;
  bool traced_ = false;  // the trace has its begin, and is to have its end
  std::byte* data_ = nullptr;
  // Where the manager counts the use, if ends are the holders' own.
  struct Use {
    int64_t epoch = 0;
    size_t index = 0;
  };
  Use use_;
  std::shared_ptr<int64_t> begin_ns_;  // when the lane got here, if recorded
  std::vector<Lane*> others_;          // with work that uses the chunk
};

class MemoryManager {
 public:
  explicit MemoryManager(MemoryManagerOptions options);
  // As Close, without waiting. REQUIRES: nothing is pinned.
  ~MemoryManager();
  MemoryManager(const MemoryManager&) = delete;
  MemoryManager& operator=(const MemoryManager&) = delete;

  // The next access of the step: gathers the chunk if it is not there, makes
  // the plan's moves for this moment, and has `lane` wait for the copy. Does
  // not block the host, except that a ThreadLane waits. Infeasible, naming the
  // chunks held, when every slot of the class is: then nothing is recorded.
  //
  // The plan may have accesses to gradients before this use, and before its
  // end. The caller makes these accesses first (PlannedBeforeUse), or the step
  // departs from the plan.
  Result<ChunkPin> Acquire(ChunkId chunk, Lane& lane);

  // A slot for the chunk's gradient, until CloseGrad. Infeasible as above.
  // Where the plan has no class for it, it is that of the chunk's parameters,
  // which are gathered and pinned as by Acquire, and gone once it is closed.
  // Not `traced`: the step's trace does not have it, unless InsertGrads says
  // so. REQUIRES, then: the step is not as planned.
  Result<Slot> OpenGrad(ChunkId chunk, bool traced = true);
  bool grad_in_place(ChunkId chunk) const {
    return options_.problem.grad_class[chunk.index()] == kNoSlotClass;
  }
  // When the chunk's copy is there and its uses that ended are done. REQUIRES:
  // its gradient is open in place of it, in a slot.
  Event UsesDone(ChunkId chunk) const;
  // `free_after`: when the reduction no longer reads the slot.
  void CloseGrad(ChunkId chunk, const Slot& slot, Event free_after,
                 bool traced = true);
  // Puts accesses that were not traced into the trace. REQUIRES: they are in
  // order, and the step is not as planned.
  void InsertGrads(std::span<const LateAccess> accesses);

  // A slot of the chunk's class for work between steps (a refresh).
  Result<Slot> BorrowSlot(ChunkId chunk);
  void ReturnSlot(const Slot& slot, Event free_after);

  // Ends the recorded step: adopts its trace, plans anew if it departed from
  // the last one, drops the copies that the update makes stale. REQUIRES: no
  // gradient open, and nothing pinned unless ends are the holders' own.
  Status EndStep();
  // Plans the next step as if `step` had come before. Infeasible, and nothing
  // is planned, where `step` holds more at once than there are slots.
  // BeginStep is to follow. REQUIRES: a step of these chunks
  // (ValidateStep), in place where gradients are; none has begun, and nothing
  // is pinned.
  Status Adopt(const StepTrace& step);
  // Gathers what the plan wants to be there when the next step begins. To be
  // called when the homes have been updated (in the order of events).
  void BeginStep(int32_t step);
  // Forgets the accesses since BeginStep. REQUIRES as for EndStep.
  void AbandonStep();

  // Accesses between the two are neither recorded nor planned. The last end
  // brings back what the plan counts on. May nest. REQUIRES, for EndStep,
  // BeginStep and AbandonStep: none is open.
  void BeginEvaluation();
  void EndEvaluation();
  bool evaluating() const { return evaluating_ > 0; }

  // Drops every copy that is not pinned, and all of shards; their slots are
  // taken again when a step begins.
  void DropAll(RunCause cause);

  // Chunks, by ChunkId, get new values: their copies go, also within a step.
  // What the plan counts on comes back with Restore, when the homes have them.
  // Leases keep what they have. REQUIRES: no evaluation is open.
  void DropStale(const std::vector<bool>& chunks);
  void Restore() { EndEvaluation(); }

  // Waits until every copy is there and what used it is done. Reports the first
  // failure of these and how many others there were.
  Status Drain();
  // Drops every copy, waits until their slots are free, and reports as Drain.
  // FailedPrecondition, naming the chunks and with nothing done, while any is
  // pinned or a gradient is open. Then the manager can only be destroyed.
  Status Close();

  // From here on the trainer has so many bytes on lease: part of the step's
  // trace, from which no plan departs.
  void SetLeased(Bytes bytes);

  // A step begins that the trainer hands gradients to. A few accesses before
  // it count to it. After more than most_outside_step(), with none held, the
  // step begins anew here.
  void EnterStep();

  // Accesses that are traced outside of a step.
  int64_t most_outside_step() const {
    // A forward sweep before the first micro-batch makes far fewer.
    return 1024 + 64 * std::ssize(copies_);
  }

  bool pinned() const { return pins_held_ > 0; }
  // Position in the step of the access served last; -1 before the first and in
  // an evaluation.
  int64_t moment() const {
    return evaluating() ? -1 : static_cast<int64_t>(trace_.size()) - 1;
  }
  const MemoryManagerStats& stats() const { return stats_; }
  const Plan* plan() const { return planned_ ? &plan_ : nullptr; }
  // What plan() costs and how good that is proved to be; none where the policy
  // proves nothing.
  const PlanCertificate* certificate() const {
    return planned_ && certificate_ ? &*certificate_ : nullptr;
  }
  const Trace& planned_trace() const { return planned_trace_; }
  // The accesses of this step so far, and whether a plan has the accesses.
  const Trace& trace() const { return trace_; }
  bool as_planned() const { return planned_ && !diverged_; }
  // What is left of the step is not as planned; as Acquire finds for itself.
  // REQUIRES: as_planned().
  void DepartFromPlan(ChunkId wanted);
  // The accesses that the plan has next, up to a use that is not of a gradient
  // in place. Where ends are not the holders' own, up to the end of a use too.
  // None where the step is not as planned so far.
  std::span<const Access> PlannedBeforeUse() const;
  // Makes the ends of uses that the plan has next, where these are the holders'
  // own.
  void FollowEnds();
  // The step ended last, with its leases; its accesses are planned_trace()
  // unless no plan was found.
  StepTrace last_step() const;

  // Has `lane` wait for `ready`, of the chunk, and times the wait.
  void WaitOn(Lane& lane, const Event& ready, ChunkId chunk, RunCause cause);
  // Time lanes waited for chunks since the start, and how often; counted when a
  // wait is over, on lanes of hardware only while there is a recorder.
  // By RunCause. Thread-safe.
  std::array<StallSum, kRunCauses> stalls() const;

 private:
  friend class ChunkPin;

  struct Copy {
    CopyState state = CopyState::kAbsent;
    Slot slot;
    Event ready;
    RunCause cause = RunCause::kNone;  // why it was gathered
    int pins = 0;
    // Where ends are the holders' own. Of the pins, those of uses in the trace
    // and outside it; of these, those whose leases have ended; leases.
    int traced = 0;
    int untraced = 0;
    int traced_ended = 0;
    int untraced_ended = 0;
    int leases = 0;
    std::vector<size_t> open;  // in uses_, without an end in the trace
    bool used = false;         // since it was gathered
    // From a copy of the shard, or that is loaded since: the source knows the
    // chunk's last load only, which this then is not.
    bool from_shard = false;
    std::vector<Event> users;  // work that reads it, released
  };
  // A use of this step, where ends are the holders' own. Moments are numbers of
  // accesses before.
  struct OpenUse {
    ChunkId chunk;
    size_t begun = 0;
    int64_t ended = -1;     // when the lease ended; -1: it has not
    bool in_trace = false;  // the end is
    bool unpinned = false;  // its pin ended before, with those of all uses
  };
  // A slot that is no copy any more, with leases on it.
  struct Leftover {
    Slot slot;
    int leases = 0;
    std::vector<Event> users;
  };
  // Counted by work on lanes, which may outlive the manager.
  struct StallCounters {
    std::array<std::atomic<int64_t>, kRunCauses> ns{};
    std::array<std::atomic<int64_t>, kRunCauses> count{};
  };

  int32_t param_class(ChunkId chunk) const {
    return options_.problem.param_class[chunk.index()];
  }
  // Records the access, checks it against the plan, makes the moves that the
  // plan has before it; Served makes those after it. NotServed takes it back.
  // REQUIRES: not evaluating.
  void Record(AccessKind kind, ChunkId chunk);
  void Served();
  void NotServed();
  // Whether an access is part of the step; notes one that is not.
  bool Traces();
  // The most on lease at the last moment so far; that of `moment`, the last
  // one.
  Bytes NotedLeased() const {
    return leases_.empty() ? Bytes(0) : leases_.back().bytes;
  }
  void NoteLeased(size_t moment, Bytes bytes);
  void MakeMoves(size_t slice);
  // The trace just ended becomes the plan of the next step.
  Status AdoptTrace();
  Status PlanTrace();
  // Tells the recorder what proves the plan, if anything does.
  void RecordPlan() const;
  // OpenGrad and CloseGrad in place of the parameters.
  Result<Slot> OpenInPlace(ChunkId chunk, bool traced);
  void CloseInPlace(ChunkId chunk, Event free_after, bool traced);
  // A free slot of the class, dropping copies if need be; `kept` others stay
  // free. `asks`: all ranks take one now, and may ask each other.
  Result<Slot> TakeSlot(int32_t slot_class, ChunkId wanted_for, SlotHold hold,
                        bool asks, int64_t kept = 0);
  // Of the class, as all ranks count them.
  int64_t FreeSlots(int32_t slot_class) const;
  // Ends the pins of uses that have ended on all ranks, or gets one more slot
  // of the class; false where neither is possible.
  Result<bool> MakeSlots(int32_t slot_class);
  // Sees to it that as many slots are free as all ranks count, whatever is on
  // lease for longer here.
  // A rank that decides alone drops other copies where memory lacks, if
  // `wanted_for` says for which chunk.
  Status BackSlots(int32_t slot_class, int64_t slots,
                   std::optional<ChunkId> wanted_for);
  bool own_ends() const { return options_.own_lease_ends; }
  // Of a use of a chunk that lies at pin.data().
  void NoteUse(ChunkPin& pin);
  void NoteLeaseEnd(const ChunkPin& pin, Event end);
  static void AddUser(std::vector<Event>& users, Event end);
  void Unpin(Copy& copy, int pins);
  // Ends the pins of all uses outside the trace, or of all.
  void EndUntraced();
  void EndAllUses();
  // Of one chunk, inside the trace and outside.
  void EndUsesOf(ChunkId chunk);
  void ForgetUses();
  // Of a step that was given, with the ends that are their holders' own.
  std::vector<OpenUse> UsesOf(const StepTrace& step) const;
  // Of the step ended last, where they are not those of the trace.
  std::vector<LeaseEnd> OwnLeaseEnds() const;
  // Puts the ends of this step's uses into the trace, as ranks agree on them.
  Status InsertEnds();
  void InsertLate(std::span<const LateAccess> accesses);
  // A use, or its end, that is no gradient's in place.
  bool IsPlain(const Trace& trace, size_t moment) const;
  // Slots of the class that are kept for gradients which are not open.
  int64_t KeptForGrads(int32_t slot_class) const;
  // Copies make room for these, as the step is not as planned any more.
  void KeepForGrads(ChunkId wanted);
  // Drops the copy that is worth least; false when all are pinned.
  bool DropOne(int32_t slot_class, ChunkId wanted_for);
  Status Gather(ChunkId chunk, RunCause cause, int64_t moment);
  // Pins the chunk's copy, which is gathered on demand where there is none.
  // REQUIRES: the chunk is gathered, not used where its home is.
  Status PinCopy(ChunkId chunk);
  // A copy of the shard, if there is none and a place for it.
  void FetchShard(ChunkId chunk, RunCause cause);
  void CountFetch(ChunkId chunk, RunCause cause);
  // Drops copies of shards but for those of the chunks in `kept`.
  void DropShards(const std::vector<bool>& kept);
  void Drop(ChunkId chunk, RunCause cause);
  void GiveSlot(Copy& copy);
  // What was fetched ahead for a plan that no longer holds goes, but for the
  // chunk that is wanted now.
  void DropUnusedPrefetches(ChunkId wanted);
  void Transition(Copy& copy, CopyEvent event);
  void EndUse(ChunkPin& pin);
  // Of the class; of all where it is kNoSlotClass.
  std::string HeldChunks(int32_t slot_class) const;
  void RecordTierBytes();
  void RecordInstant(RunEventKind kind, ChunkId chunk, RunCause cause);

  MemoryManagerOptions options_;
  std::vector<Copy> copies_;     // by ChunkId
  std::vector<bool> grad_open_;  // by ChunkId
  Trace trace_;                  // of this step, so far
  bool in_step_ = false;         // EnterStep was called
  bool untraced_ = false;        // more was accessed before than is traced
  Trace planned_trace_;
  Bytes leased_;                          // now
  Bytes leased_before_;                   // most before the first access
  std::vector<LeaseChange> leases_;       // of this step, so far
  std::vector<LeaseChange> last_leases_;  // of planned_trace_
  std::vector<OpenUse> last_uses_;        // of planned_trace_
  Plan plan_;
  std::optional<PlanCertificate> certificate_;
  std::vector<bool> initial_;         // by ChunkId: in plan_.initial
  std::vector<int64_t> first_use_;    // of each of plan_.initial, its moment
  std::vector<bool> initial_shards_;  // the same of plan_.initial_shards
  ShardPlaces shards_;
  bool planned_ = false;
  bool diverged_ = false;
  int evaluating_ = 0;
  std::vector<bool> before_evaluation_;  // by ChunkId: there was a copy
  // Chunks whose copies are resident, in no order, by slot class.
  std::vector<std::vector<ChunkId>> resident_;
  std::vector<int64_t> words_;  // scratch of what ranks agree on
  std::vector<OpenUse> uses_;   // of this step, so far
  int64_t traced_epoch_ = 0;    // of uses_
  int64_t untraced_epoch_ = 0;  // of uses outside the trace
  std::vector<Leftover> leftovers_;
  std::vector<int64_t> extra_slots_;  // by class: added for these
  int64_t pins_held_ = 0;
  ChunkId last_used_;
  bool forward_ = true;
  int32_t step_ = 0;
  MemoryManagerStats stats_;
  std::shared_ptr<StallCounters> stall_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_MANAGER_H_
