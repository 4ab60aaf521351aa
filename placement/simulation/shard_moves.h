// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_SHARD_MOVES_H_
#define CASTOR_PLACEMENT_SIMULATION_SHARD_MOVES_H_

// The shards of a simulated rank at their homes and the moves to and from them:
// what offload/shards/shard_store.h queues on which lane after which events.
// Owner thread only. Part of the simulated rank (simulated_rank.h).

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/run_event.h"
#include "placement/simulation/simulated_engine.h"
#include "placement/simulation/step_traffic.h"
#include "placement/timeline/drive_queue.h"
#include "placement/timeline/event_loop.h"
#include "placement/timeline/sim_lane.h"
#include "placement/timeline/wires.h"

namespace castor::internal {

// A copy over a link of the device, on a lane.
void QueueTraffic(SimLane& lane, Wires* wires, Traffic traffic, Bytes bytes);

class ShardMoves {
 public:
  enum class Mode : uint8_t { kRead, kWrite, kReadWrite, kScratch };
  struct Request {
    ChunkId chunk;
    StateKind state = StateKind::kParam;
    Bytes size;
    Mode mode = Mode::kRead;
    SimEvent after;  // of kScratch, which copies from the device
    DrivePriority priority = DrivePriority::kDemand;  // of what is read
  };
  // A shard in host memory, for work there.
  struct Window {
    Request request;
    SimEvent ready;
    SimEvent staging;  // where it is staged: the slot's
    bool staged = false;
  };

  // The arguments outlive these moves, and the moves outlive their queued work.
  // Bytes that are moved are added to `traffic`, by ChunkId; loads that are
  // taken back are taken off.
  // Lanes of kThread: nothing takes time, and what is queued is over at once.
  ShardMoves(EventLoop* loop, SimLane::Kind lanes, Wires* wires,
             const SimulatedEngine* engine, std::vector<StepTraffic>* traffic);

  bool has(ChunkId chunk, StateKind state) const {
    return Facts(chunk, state).bytes > Bytes(0);
  }
  Tier home(ChunkId chunk, StateKind state) const {
    return Facts(chunk, state).home;
  }
  Bytes bytes(ChunkId chunk, StateKind state) const {
    return Facts(chunk, state).bytes;
  }

  const SimEvent& written(ChunkId chunk, StateKind state) {
    return At(chunk, state).written;
  }
  void AddReader(ChunkId chunk, StateKind state, SimEvent reader);
  SimEvent WriteReady(ChunkId chunk, StateKind state);
  void SetWritten(ChunkId chunk, StateKind state, SimEvent written);

  // As ShardStore's.
  SimEvent Load(ChunkId chunk, StateKind state, Bytes size,
                const SimEvent& after, RunCause cause);
  SimEvent Store(ChunkId chunk, StateKind state, Bytes size,
                 const SimEvent& after);
  // Somebody waits for the chunk's last load of kPrefetch now.
  void Raise(ChunkId chunk);
  // Takes that load back. False where it has begun.
  bool Cancel(ChunkId chunk);
  // Infeasible where there are fewer staging slots than they take.
  Result<std::vector<Window>> Open(std::span<const Request> requests);
  void Close(const Window& window, const SimEvent& after);

 private:
  struct Shard {
    SimEvent written;
    std::vector<SimEvent> readers;
  };
  // A load of kPrefetch.
  struct AheadLoad {
    enum class Phase : uint8_t { kWaiting, kBegun, kCancelled };

    Phase phase = Phase::kWaiting;
    Bytes size;
    DriveQueue::Ticket read;  // null: its home is host memory
    Bytes extent;
  };

  const SimulatedState& Facts(ChunkId chunk, StateKind state) const {
    return engine_->chunks[chunk.index()].states[static_cast<size_t>(state)];
  }
  Shard& At(ChunkId chunk, StateKind state) {
    return shards_[chunk.index()][static_cast<size_t>(state)];
  }
  bool NeedsStaging(const Request& request) const {
    return request.mode == Mode::kScratch ||
           home(request.chunk, request.state) != Tier::kHost;
  }
  SimEvent Arrive(const Request& request, const SimEvent& staging);
  static SimEvent TakeFrom(std::deque<SimEvent>& slots);
  // Those of fetches: their own, where there are any.
  std::deque<SimEvent>& FetchSlots() {
    return engine_->fetch_slots > 0 ? fetch_staging_ : staging_;
  }
  // `transfers`: -1 takes one off.
  void Count(ChunkId chunk, Tier from, Tier to, Bytes bytes,
             int transfers = 1) {
    (*traffic_)[chunk.index()].on(from, to) +=
        LinkTraffic{bytes * transfers, transfers};
  }
  SimEvent Copy(SimLane& lane, ChunkId chunk, Tier from, Tier to, Bytes bytes);
  SimEvent MoveExtent(ChunkId chunk, StateKind state, bool read,
                      const SimEvent& start, DrivePriority priority,
                      DriveQueue::Ticket* ticket = nullptr);

  const bool timed_;
  Wires* const wires_;
  const SimulatedEngine* const engine_;
  std::vector<StepTraffic>* const traffic_;
  DriveQueue drive_;
  std::vector<std::array<Shard, kStateKinds>> shards_;   // by ChunkId
  std::vector<std::shared_ptr<AheadLoad>> ahead_loads_;  // by ChunkId
  // Slots that are here, the longest first.
  std::deque<SimEvent> staging_;
  std::deque<SimEvent> fetch_staging_;
  SimLane to_device_;
  SimLane back_to_device_;
  SimLane from_device_;
  SimLane ahead_;
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_SIMULATION_SHARD_MOVES_H_
