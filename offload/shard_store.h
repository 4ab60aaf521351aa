// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_SHARD_STORE_H_
#define CASTOR_OFFLOAD_SHARD_STORE_H_

// The shards of one rank at their homes, and the moves to and from them. A
// shard is what this rank keeps of one state of one chunk: a slice, or the
// whole where the state is replicated. Its home never changes; its bytes are
// read and written through three kinds of move:
//
//   Load        home  -> device memory      (fetch, in order to gather)
//   Store       device memory -> home       (a reduced gradient, a refresh)
//   HostWindow  the bytes in host memory, for work that runs there (optimizer)
//
// Moves are queued and ordered by events: a read waits for the last write of
// the shard, a write for its readers; no call blocks. From NVMe the way leads
// through a ring of staging slots in host memory. A move that fails fails its
// event and whatever waits for it, and on_failure hears of the first one before
// the event is done. Owner thread only.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/lane.h"
#include "offload/nvme/io_queue.h"
#include "offload/rank_pools.h"
#include "placement/run_event.h"

namespace castor {

struct ShardStoreOptions {
  RankPools* pools = nullptr;
  Executor* executor = nullptr;
  const Clock* clock = nullptr;
  RunRecorder* recorder = nullptr;  // may be null
  // Called once, with the first failure, from whichever thread met it.
  Lane::OnFailure on_failure;
  int32_t rank = 0;
  // Class of host slots used as staging, and how many of them.
  int32_t staging_class = -1;
  int64_t staging_slots = 0;
};

struct ByteRange {
  Bytes begin;
  Bytes end;
  Bytes size() const { return end - begin; }
};

enum class WindowMode : uint8_t { kRead, kWrite, kReadWrite };

// A shard's bytes in host memory, between OpenWindow and CloseWindow.
struct HostWindow {
  std::byte* data = nullptr;  // of the range asked for
  Event ready;                // the bytes are there, and may be written
  // The rest is the store's.
  ChunkId chunk;
  StateKind state = StateKind::kParam;
  ByteRange range;
  WindowMode mode = WindowMode::kRead;
  RunCause cause = RunCause::kNone;
  Slot staging;  // not valid where the home itself is host memory
};

class ShardStore {
 public:
  // Takes the staging slots. REQUIRES: the pool has as many.
  explicit ShardStore(const ShardStoreOptions& options);
  // Waits for the moves under way, then gives every slot back. REQUIRES: no
  // window is open.
  ~ShardStore();
  ShardStore(const ShardStore&) = delete;
  ShardStore& operator=(const ShardStore&) = delete;

  // Takes a slot of `slot_class` on `home` for `bytes` of the state. A shard is
  // added once.
  Status AddShard(ChunkId chunk, StateKind state, Tier home, int32_t slot_class,
                  Bytes bytes);

  bool has(ChunkId chunk, StateKind state) const;
  Tier home(ChunkId chunk, StateKind state) const;
  Bytes bytes(ChunkId chunk, StateKind state) const;

  // The memory of a shard whose home is the device, and the event after which
  // its contents are valid. Work that reads it is told by AddReader, work that
  // writes it waits for WriteReady and is told by SetWritten.
  std::byte* device_data(ChunkId chunk, StateKind state) const;
  const Event& written(ChunkId chunk, StateKind state) const;
  void AddReader(ChunkId chunk, StateKind state, Event reader);
  Event WriteReady(ChunkId chunk, StateKind state);
  void SetWritten(ChunkId chunk, StateKind state, Event written);

  // REQUIRES, for Load, Store and OpenWindow: no window is open that would
  // write what they read, or read or write what they write.

  // Copies `range` of the shard to device memory at `to` once `after` is done.
  Event Load(ChunkId chunk, StateKind state, ByteRange range, std::byte* to,
             const Event& after, RunCause cause);
  // Copies device memory at `from` into `range` of the shard once `after` is
  // done. The range is the whole shard where its home is NVMe.
  Event Store(ChunkId chunk, StateKind state, ByteRange range,
              const std::byte* from, const Event& after, RunCause cause);

  // CHECKs that a staging slot is free: the caller opens no more windows at one
  // time than it sized the ring for.
  HostWindow OpenWindow(ChunkId chunk, StateKind state, ByteRange range,
                        WindowMode mode, RunCause cause);
  // Ends a window; once it is ready and `after` is done, nobody uses its bytes
  // any more. What was written goes home.
  void CloseWindow(HostWindow window, const Event& after);

  // Copies device memory to a staging slot, for work that adds it to a window;
  // `copied` is set to the event after which it is there. The caller gives the
  // slot back.
  Slot StageFromDevice(ChunkId chunk, StateKind state, const std::byte* from,
                       Bytes size, const Event& after, RunCause cause,
                       Event* copied);

  // Writes all bytes of a shard, or reads a range of them, and blocks until
  // done. For start, checkpoints and questions, never inside a step.
  Status WriteNow(ChunkId chunk, StateKind state, const std::byte* from);
  Status ReadNow(ChunkId chunk, StateKind state, ByteRange range,
                 std::byte* to);

  // A staging slot for bytes on their way; GiveStaging says when it is free.
  Slot TakeStaging();
  void GiveStaging(Slot slot, Event free_after);

  Lane& to_device_lane() { return to_device_; }
  Lane& from_device_lane() { return from_device_; }

  // Bytes moved since the start, [from][to] by TierIndex.
  const std::array<std::array<Bytes, 3>, 3>& moved() const { return moved_; }
  // What is recorded, and written to NVMe, from now on is of this step.
  void set_step(int32_t step) {
    step_ = step;
    if (options_.pools->nvme() != nullptr) {
      options_.pools->nvme()->BeginStep(step);
    }
  }

 private:
  struct Shard {
    Tier home = Tier::kHost;
    Bytes bytes;
    Slot slot;
    Event written;
    std::vector<Event> readers;
    int windows = 0;       // open ones
    bool writing = false;  // in the one that is open
  };

  Shard& At(ChunkId chunk, StateKind state);
  const Shard& At(ChunkId chunk, StateKind state) const;
  // Done when both are.
  static Event Both(const Event& a, const Event& b);
  // Queues a copy on `lane` and returns its end.
  Event Copy(Lane& lane, std::byte* to, const std::byte* from, Bytes size,
             RunEvent event);
  RunEvent Describe(ChunkId chunk, StateKind state, Tier from, Tier to,
                    Bytes size, RunCause cause) const;
  // A whole-extent transfer between a staging slot and the shard's extent.
  Event ReadExtent(Shard& shard, const Slot& staging, const Event& after,
                   const RunEvent& event);
  Event WriteExtent(Shard& shard, const Slot& staging, const Event& after,
                    const RunEvent& event);
  static IoPriority PriorityOf(const RunEvent& event);
  // Either, from `start` on. Its end comes after everything that the transfer
  // does to the recorder and to on_failure.
  Event MoveExtent(const Shard& shard, const Slot& staging, Event start,
                   const RunEvent& event);

  ShardStoreOptions options_;
  std::vector<std::array<std::unique_ptr<Shard>, kStateKinds>> shards_;
  std::deque<Slot> staging_;  // free ones, the longest free first
  std::array<std::array<Bytes, 3>, 3> moved_;
  int32_t step_ = 0;
  WorkerLane to_device_;
  WorkerLane from_device_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_SHARD_STORE_H_
