// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARDS_SHARD_STORE_H_
#define CASTOR_OFFLOAD_SHARDS_SHARD_STORE_H_

// The shards of one rank at their homes, and the moves to and from them. A
// shard is what this rank keeps of one state of one chunk: a slice, or the
// whole where the state is replicated. Its bytes are reached in four ways:
//
//   Load        home -> device memory: a fetch, in order to gather.
//   Store       device memory -> home: a reduced gradient, a refresh.
//   HostWindow  The bytes in host memory, for work that runs there.
//   Move        home -> a home on another tier.
//
// Moves are queued and ordered by events: a read waits for the last write of
// the shard, a write for its readers; no call blocks. Between the device or a
// window and NVMe the way leads through a ring of staging slots in host memory.
// A shard larger than these goes piece by piece, and each piece has a window of
// its own.
// While open windows hold too many of these, what comes after waits, in the
// order of the calls, until enough are given back: nothing fails for want of
// one, and what could never be served is refused at the call. So what ends a
// window must not wait for what was asked for after the window was opened;
// windows that one piece of work uses together are opened together.
//
// Demand never waits for what is fetched ahead, which has lanes of its own.
// Such a fetch can be taken back before it begins, and is raised when a lane
// waits. No fetch waits for the optimizer's windows, but for those of its own
// shard: fetches have staging slots and lanes of their own, and the optimizer's
// transfers are the drive's least urgent ones.
//
// A move that fails fails its event and whatever waits for it, and on_failure
// hears of the first one before the event is done. Owner thread only.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/lanes/failure_log.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/shards/host_window.h"
#include "offload/shards/rank_pools.h"
#include "offload/shards/staging_ring.h"
#include "offload/shards/window_work.h"
#include "placement/run_event.h"
#include "placement/traffic_book.h"

namespace castor {

struct ShardStoreOptions {
  RankPools* pools = nullptr;
  const Clock* clock = nullptr;
  RunRecorder* recorder = nullptr;  // may be null
  TrafficBook* traffic = nullptr;   // counts transfers; may be null
  // Called once, with the first failure, from whichever thread met it.
  Lane::OnFailure on_failure;
  int32_t rank = 0;
  StateNames names = {};  // for messages
  // Class of host slots used as staging, and how many of them.
  int32_t staging_class = -1;
  int64_t staging_slots = 0;
  // Of these, how many only fetches use; 0: they share all.
  int64_t fetch_slots = 0;
  // And how many work that begins by urgency has of its own.
  int64_t work_slots = 0;
};

// What a Load of kPrefetch leaves behind, so that it can be taken back.
class LoadTicket {
 public:
  LoadTicket() = default;  // of no load

 private:
  friend class ShardStore;
  struct State;
  std::shared_ptr<State> state_;
};

class ShardStore {
 public:
  // Takes the staging slots. REQUIRES: the pool has as many.
  explicit ShardStore(const ShardStoreOptions& options);
  // As Close. REQUIRES: no window is open.
  ~ShardStore();
  ShardStore(const ShardStore&) = delete;
  ShardStore& operator=(const ShardStore&) = delete;

  // Takes a slot of `slot_class` on `home` for `bytes` of the state. The shard
  // moves in pieces of `piece`, a multiple of 4 KiB; 0: whole. A shard that
  // moves whole counts as one move for each `counted` bytes; 0: as one. A shard
  // is added once.
  Status AddShard(ChunkId chunk, StateKind state, Tier home, int32_t slot_class,
                  Bytes bytes, Bytes piece = {}, Bytes counted = {});

  bool has(ChunkId chunk, StateKind state) const;
  Tier home(ChunkId chunk, StateKind state) const;
  Bytes bytes(ChunkId chunk, StateKind state) const;
  // Of all pieces but the last: where it is moved whole, its bytes.
  Bytes piece(ChunkId chunk, StateKind state) const;
  // Of the pool of its home. REQUIRES: it has a slot.
  int32_t slot_class(ChunkId chunk, StateKind state) const;
  // Every shard there is, in the order of chunks and states.
  struct ShardId {
    ChunkId chunk;
    StateKind state = StateKind::kParam;
  };
  std::vector<ShardId> shards() const;

  // The memory of a shard whose home is the device, and the event after which
  // its contents are valid. Work that reads it is told by AddReader, work that
  // writes it waits for WriteReady and is told by SetWritten.
  std::byte* device_data(ChunkId chunk, StateKind state) const;
  Event written(ChunkId chunk, StateKind state);
  void AddReader(ChunkId chunk, StateKind state, Event reader);
  Event WriteReady(ChunkId chunk, StateKind state);
  void SetWritten(ChunkId chunk, StateKind state, Event written);

  // REQUIRES, for Load, Store and windows: no window is open that would write
  // what they read, or read or write what they write.

  // Copies `range` of the shard to device memory at `to` once `after` is done.
  // `ticket`, when given, is for Cancel and Raise.
  Event Load(ChunkId chunk, StateKind state, ByteRange range, std::byte* to,
             const Event& after, RunCause cause, LoadTicket* ticket = nullptr);
  // Takes a load of kPrefetch back. True: nothing of it has reached its target,
  // nor ever will, so that the memory is free once the load's own `after` is
  // done. False: it has begun, is over, or was none of kPrefetch.
  bool Cancel(const LoadTicket& ticket);
  // Somebody waits for this load of kPrefetch now.
  void Raise(const LoadTicket& ticket);

  // Copies device memory at `from` into `range` of the shard once `after` is
  // done. The range is of whole pieces where its home is NVMe. Returns when the
  // device memory may be reused.
  Event Store(ChunkId chunk, StateKind state, ByteRange range,
              const std::byte* from, const Event& after, RunCause cause);

  // Opens windows that are used together, each within one piece. Infeasible,
  // with the numbers, when the ring has fewer staging slots than they take;
  // then none is open.
  Result<std::vector<HostWindow>> OpenWindows(
      std::span<const WindowRequest> requests);
  // One window. REQUIRES: the ring has a slot, if the window takes one.
  HostWindow OpenWindow(ChunkId chunk, StateKind state, ByteRange range,
                        WindowMode mode, RunCause cause);
  // Ends a window; once it is ready and `after` is done, nobody uses its bytes
  // any more. What was written goes home.
  void CloseWindow(HostWindow window, const Event& after);

  // Queues work that begins by urgency: its windows are open while the work
  // runs. Later calls are ordered behind the work, as behind a closed window.
  // Returns when the device memory of kScratch may be reused. REQUIRES:
  // QueuesWork; no open window writes bytes that the work reads, or reads or
  // writes bytes that the work writes; no request waits, for work that writes
  // aside.
  Event QueueWork(WindowWork work);
  // Whether work on these windows would wait for work that was queued before.
  // The former gives way in every queue: if it held its place there, the latter
  // might never begin.
  bool WaitsForWork(std::span<const WindowRequest> windows);
  // Whether work on these windows takes staging of its own.
  bool TakesStaging(std::span<const WindowRequest> windows) const {
    return StagedOf(windows) > 0;
  }
  // When all that was queued so far is over.
  Event WorkUnderWay() const { return AllOf(work_under_way_); }
  // Whether work that was queued has not begun. On any thread.
  bool WorkWaits() const;
  // Whether such work has staging enough of its own.
  bool QueuesWork(std::span<const WindowRequest> windows) const;

  // A shard may have a spare place beside its home, which work fills while the
  // home keeps its bytes (WindowRequest::aside): a slot of `slot_class` of a
  // tier that is no device. TierFull where no slot is free. REQUIRES: the shard
  // has no spare place; the tier is host memory where the home is the device,
  // and the drive where the home is on the drive.
  Status TakeAside(ChunkId chunk, StateKind state, Tier tier,
                   int32_t slot_class);
  // Makes the new bytes those of the shard. A spare place of the home's tier
  // becomes the home, and the old home goes back; from another tier the new
  // bytes are copied home. Of a shard whose home is not the device all bytes
  // are new. REQUIRES: a spare place, whose work is queued.
  void CommitAside(ChunkId chunk, StateKind state);
  // The failure of work on the spare place so far; ok: none. The drive's are
  // told of to nobody else before CommitAside. REQUIRES: a spare place.
  Status AsideFailure(ChunkId chunk, StateKind state);
  // Gives the spare place back, and the new bytes up, whether or not the work
  // fails.
  void DropAside(ChunkId chunk, StateKind state);

  // Makes `to` the shard's home, and gives the old slot back. The new slot is
  // of `slot_class`, if the caller names a class. Else the store picks the
  // smallest class that holds the shard, of classes with a free slot first.
  // Until the new slot, and staging
  // between device and NVMe, is there, the shard is used at its old home; the
  // move begins when no window on it is open. The event says when its bytes
  // have arrived.
  //
  // TierFull, with the numbers, when no slot is free nor on its way back;
  // Infeasible when the tier has no class for it, or there is no staging;
  // FailedPrecondition while a move of it to another tier is under way.
  Result<Event> Move(ChunkId chunk, StateKind state, Tier to, RunCause cause,
                     int32_t slot_class = -1);

  // Gives the slot of a shard whose bytes nobody needs back, until Reoccupy
  // takes one of the same class again; the bytes are then undefined. In between
  // only has, home and bytes may be asked of it. REQUIRES: no window is open on
  // it, no request for it waits, and nobody moves it.
  void Vacate(ChunkId chunk, StateKind state);
  Status Reoccupy(ChunkId chunk, StateKind state);

  // Writes all bytes of a shard, or reads a range of them, and blocks until
  // done. For start, checkpoints and questions, never inside a step.
  // FailedPrecondition, with the numbers, where that would wait for a window
  // that the caller holds open.
  Status WriteNow(ChunkId chunk, StateKind state, const std::byte* from);
  Status ReadNow(ChunkId chunk, StateKind state, ByteRange range,
                 std::byte* to);
  // The bytes of a shard that the host addresses, empty where it does not: on
  // NVMe, and on a device whose memory the host cannot address. `written`: the
  // caller writes all of them. Nothing may be queued on the store.
  std::span<std::byte> MemoryNow(ChunkId chunk, StateKind state, bool written);

  // Bytes that the shard takes of its drive; 0 where its home is none.
  Bytes DriveBytes(ChunkId chunk, StateKind state) const;
  // Gives the space on the drive back of a shard whose bytes nobody needs any
  // more. Nothing may be queued on the store.
  void GiveSpaceNow(ChunkId chunk, StateKind state);

  // Waits until all that was queued has run, and reports the first failure
  // since the start and how many others there were. FailedPrecondition, with
  // the numbers, when requests remain that wait for open windows.
  Status Drain();
  // Drains, gives every slot back, and reports as Drain; the store can only be
  // destroyed after it. FailedPrecondition, with nothing done, while a window
  // is open.
  Status Close();

  const StagingRing& staging() const { return *staging_; }
  // More staging for a while, as the ring's Grow and Shrink. REQUIRES, for
  // Shrink: no window is open.
  void GrowStaging(int32_t slot_class, int64_t slots) {
    staging_->Grow(slot_class, slots);
  }
  void ShrinkStaging() { staging_->Shrink(); }

  // Bytes moved since the start, [from][to] by TierIndex; loads that were taken
  // back do not count.
  const std::array<std::array<Bytes, 3>, 3>& moved() const { return moved_; }
  int64_t loads_cancelled() const { return loads_cancelled_; }
  // A step begins: what is recorded and what is written to drives counts to it.
  void BeginStep(int32_t step);

 private:
  struct PendingMove;
  // New bytes beside a home.
  struct Aside {
    Tier tier = Tier::kHost;
    Slot slot;
    struct Part {
      ByteRange range;  // of the shard, within one piece
      Event written;
    };
    std::vector<Part> parts;
  };
  struct Piece {
    ByteRange range;  // of the shard
    Event written;
    std::vector<Event> readers;
    int windows = 0;               // open ones
    bool writing = false;          // in the one that is open
    std::vector<Event> work = {};  // ends of queued work; perhaps some are past
  };
  struct Shard {
    Tier home = Tier::kHost;
    Bytes bytes;
    Bytes counted;  // see AddShard
    Slot slot;
    std::vector<Piece> pieces;
    bool filled = false;   // its bytes were ever written
    int holds = 0;         // windows and waiting requests: it may not move
    int32_t vacated = -1;  // class of the slot that it gave back meanwhile
    std::shared_ptr<PendingMove> move;  // null: none
    std::unique_ptr<Aside> aside;       // null: none
  };
  // Where a piece's bytes are, for work queued while they are there.
  struct Place {
    Tier tier = Tier::kHost;
    Bytes offset;  // from the start of the slab or file
    std::byte* data = nullptr;
    Bytes extent;  // what a transfer to or from the drive covers
  };

  Shard& At(ChunkId chunk, StateKind state);
  const Shard& At(ChunkId chunk, StateKind state) const;
  // The piece that has all of the range.
  static Piece& PieceAt(Shard& shard, ByteRange range);
  static const Piece& PieceAt(const Shard& shard, ByteRange range) {
    return PieceAt(const_cast<Shard&>(shard), range);
  }
  static Place PlaceOf(const Shard& shard, const Piece& piece);
  static Place PlaceIn(Tier tier, const Slot& slot, const Piece& piece);
  // Of its spare place; the home's tier where there is none.
  static Tier AsideTier(const Shard& shard) {
    return shard.aside != nullptr ? shard.aside->tier : shard.home;
  }
  static Event Written(const Shard& shard);
  static Event WriteReady(const Piece& piece);
  static Event WriteReady(const Shard& shard);
  static void AddReader(Piece& piece, Event reader);
  static void SetWritten(Shard& shard, Piece& piece, Event written);
  static void SetWritten(Shard& shard, const Event& written);
  // What of the range lies in each piece, in order.
  struct Part {
    Piece* piece;
    ByteRange range;
  };
  static std::vector<Part> PartsOf(Shard& shard, ByteRange range);
  // When the event is over, whether or not it failed.
  static Event EndOf(const Event& event);
  // Done when both are.
  static Event Both(const Event& a, const Event& b);

  // Runs `op`, which works on a shard, with `count` staging slots: now or, if
  // others wait or too few are here, in its turn. Returns the event that `op`
  // returns, or one that ends with it. REQUIRES: the ring has as many.
  using Op = std::function<Event(std::span<Slot>)>;
  Event InTurn(ChunkId chunk, StateKind state, int64_t count, StagingUse use,
               Op op);
  void ReleaseHold(Shard& shard);
  bool OthersWait() const { return staging_->OthersWait(); }

  // Of Load and Store, once it is their turn. `read` is done when the home has
  // been read.
  struct LoadWork;
  Event LoadPart(LoadWork work);
  Event LoadNow(const LoadWork& work, std::span<Slot> staging);
  Event StorePart(ChunkId chunk, StateKind state, ByteRange range,
                  const std::byte* from, const Event& after, RunCause cause);
  Event StoreNow(ChunkId chunk, StateKind state, ByteRange range,
                 const std::byte* from, const Event& after, RunCause cause,
                 std::span<Slot> staging);
  // Of windows.
  bool NeedsStaging(const WindowRequest& request) const;
  HostWindow Prepare(const WindowRequest& request);
  // The window's turn has come: its data, and the event after which its bytes
  // are there. `staging` is not valid where it takes none.
  Event Arrive(const WindowRequest& request, Slot staging, std::byte** data);
  // The bytes go home, and the slot back, after `used`.
  void Depart(const HostWindow& window, const Event& used);
  // Of QueueWork. The last four are called on any thread.
  struct WorkLeg;
  struct QueuedWork;
  struct WorkQueue;
  int64_t StagedOf(std::span<const WindowRequest> windows) const;
  void Enlist(const std::shared_ptr<QueuedWork>& queued,
              const EventSource& copied);
  WorkLeg LegOf(const WindowRequest& request);
  void EnlistLeg(WorkLeg& leg, std::vector<Event>& before);
  RunEvent Describe(const WorkLeg& leg, bool read, int32_t step) const;
  void BeginWork(const std::shared_ptr<QueuedWork>& queued,
                 std::span<std::byte* const> slots, const Status& ready);
  Event ReadLeg(const WorkLeg& leg, int32_t step);
  void WriteLeg(const std::shared_ptr<QueuedWork>& queued, const WorkLeg& leg);
  void EndWork(const std::shared_ptr<QueuedWork>& queued, const Status& status);
  // Of CommitAside: from host memory to the device, from a drive to host
  // memory.
  void CopyAside(ChunkId chunk, StateKind state, const Aside& aside);
  Event CopyAsidePart(ChunkId chunk, StateKind state, const Slot& from,
                      const Piece& piece, ByteRange range, const Event& ready);
  // Of Move.
  Result<int32_t> ClassFor(Tier to, const Shard& shard) const;
  void AdvanceMove(const std::shared_ptr<PendingMove>& move);
  Event StartMove(PendingMove& move, std::span<Slot> staging);
  Event MovePiece(const PendingMove& move, const Piece& piece,
                  const Place& from, const Place& to, Slot* staging);
  // For calls that block: whether they could be waiting for their own caller.
  Status CheckMayBlock() const;
  Result<Slot> TakeStagingNow();

  // Queues a copy between the device and host memory, or within the device, on
  // a lane of the device, and returns its end. Counts nothing.
  Event Copy(Lane& lane, std::byte* to, const std::byte* from,
             const RunEvent& event);
  // The same on the lane for what is fetched ahead, unless the load was taken
  // back before.
  Event CopyAhead(std::byte* to, const std::byte* from, const RunEvent& event,
                  std::shared_ptr<LoadTicket::State> ticket);
  void NoteBegin(Lane& lane, const std::shared_ptr<RunEvent>& event) const;
  RunEvent Describe(ChunkId chunk, StateKind state, Tier from, Tier to,
                    Bytes size, RunCause cause) const;
  // Of that step. On any thread.
  RunEvent Describe(ChunkId chunk, StateKind state, Tier from, Tier to,
                    Bytes size, RunCause cause, int32_t step) const;
  void Count(const RunEvent& event);
  // So many of them, of `bytes` together; negative: taken back.
  void Count(ChunkId chunk, Tier from, Tier to, Bytes bytes, int64_t transfers);
  static IoPriority PriorityOf(const RunEvent& event);
  // A transfer between host memory at `data` and a shard's place on the drive,
  // from `start` on. Its end comes after everything that the transfer does to
  // the recorder and to on_failure. Counts.
  // One that `ticket` took back is no failure.
  Event MoveExtent(const Place& drive, std::byte* data, Event start,
                   const RunEvent& event,
                   std::shared_ptr<LoadTicket::State> ticket = nullptr);
  // The same of a place in a store, uncounted. On any thread.
  Event Transfer(const RankPools::NvmePlace& drive, std::byte* data,
                 Bytes extent, Event start, const RunEvent& event,
                 std::shared_ptr<LoadTicket::State> ticket = nullptr);

  ShardStoreOptions options_;
  FailureLog failures_;
  std::vector<std::array<std::unique_ptr<Shard>, kStateKinds>> shards_;
  std::unique_ptr<StagingRing> staging_;  // null once closed
  std::array<std::array<Bytes, 3>, 3> moved_;
  int64_t open_windows_ = 0;
  int64_t loads_cancelled_ = 0;
  int32_t step_ = 0;
  std::unique_ptr<Lane> to_device_;
  std::unique_ptr<Lane> from_device_;
  // What windows bring back, so that demand never waits for it.
  std::unique_ptr<Lane> back_to_device_;
  // What is fetched ahead, so that demand never waits for it.
  std::unique_ptr<Lane> ahead_;
  std::unique_ptr<WorkQueue> work_;
  std::vector<Event> work_under_way_;  // and what has ended since
  size_t most_under_way_ = 0;          // before those go that have ended
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARDS_SHARD_STORE_H_
