// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_COPIES_FAKE_CHUNK_SOURCE_H_
#define CASTOR_TESTS_OFFLOAD_COPIES_FAKE_CHUNK_SOURCE_H_

// A ChunkSource that notes what it is asked for and stamps each slot with the
// chunk and its version, so that a reader can tell whose bytes it sees. Copies
// are there at once, or, with a lane, when the lane gets to them; until then
// they may be taken back, where that is switched on. Owner thread only.

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/memory_manager.h"
#include "placement/run_event.h"

namespace castor {

struct ChunkStamp {
  int32_t chunk = -1;
  int32_t version = -1;

  friend bool operator==(const ChunkStamp&, const ChunkStamp&) = default;
};

inline ChunkStamp StampAt(const std::byte* data) {
  ChunkStamp stamp;
  std::memcpy(&stamp, data, sizeof(stamp));
  return stamp;
}

class FakeChunkSource final : public ChunkSource {
 public:
  struct Call {
    ChunkId chunk;
    RunCause cause = RunCause::kNone;
    int64_t moment = 0;

    friend bool operator==(const Call&, const Call&) = default;
  };

  // `chunks` of version 0.
  explicit FakeChunkSource(size_t chunks)
      : versions(chunks, 0),
        direct_used(chunks),
        direct_data_(chunks),
        last_(chunks) {}

  Event Gather(ChunkId chunk, const Slot& slot, RunCause cause,
               int64_t moment) override {
    calls.push_back({chunk, cause, moment});
    slots.push_back(slot);
    return Load(chunk, slot.free_after, slot.data);
  }
  // The shard is stamped as the chunk; a gather takes over what it finds.
  Event FetchShard(ChunkId chunk, std::byte* to, const Event& after,
                   RunCause) override {
    shards.push_back(chunk);
    return Load(chunk, after, to);
  }
  Event GatherFrom(const std::byte* shard, const Event& ready, ChunkId chunk,
                   const Slot& slot, RunCause cause, int64_t moment) override {
    calls.push_back({chunk, cause, moment});
    slots.push_back(slot);
    from_shards.push_back(chunk);
    if (lane != nullptr) {
      last_[chunk.index()] = std::make_shared<Copy>(Copy::kBegun);
    }
    return Stamped(slot.free_after, ready, [shard, to = slot.data] {
      std::memcpy(to, shard, sizeof(ChunkStamp));
    });
  }
  std::byte* DirectData(ChunkId chunk) override {
    std::array<std::byte, sizeof(ChunkStamp)>& data =
        direct_data_[chunk.index()];
    const ChunkStamp stamp{chunk.value(), versions[chunk.index()]};
    std::memcpy(data.data(), &stamp, sizeof(stamp));
    return data.data();
  }
  Event DirectReady(ChunkId) override { return direct_ready; }
  void DirectUsed(ChunkId chunk, Event last_use) override {
    direct_used[chunk.index()].push_back(std::move(last_use));
  }

  bool Cancellable(ChunkId) const override { return cancellable; }
  bool Cancel(ChunkId chunk) override {
    Copy& copy = *last_[chunk.index()];
    if (copy != Copy::kWaiting) return false;
    copy = Copy::kCancelled;
    cancelled.push_back(chunk);
    return true;
  }
  void Raise(ChunkId chunk) override { raised.push_back(chunk); }

  bool cancellable = false;
  std::vector<ChunkId> cancelled;
  std::vector<ChunkId> raised;
  std::vector<Call> calls;
  std::vector<Slot> slots;           // of the calls
  std::vector<ChunkId> shards;       // fetched to places of their own
  std::vector<ChunkId> from_shards;  // gathered from there
  std::vector<int32_t> versions;
  std::vector<std::vector<Event>> direct_used;
  Event direct_ready;
  Lane* lane = nullptr;

 private:
  enum class Copy { kWaiting, kBegun, kCancelled };

  // Of the chunk, or of its shard: the last one may be taken back.
  Event Load(ChunkId chunk, const Event& after, std::byte* to) {
    const ChunkStamp stamp{chunk.value(), versions[chunk.index()]};
    if (lane == nullptr) {
      std::memcpy(to, &stamp, sizeof(stamp));
      return Event();
    }
    auto load = std::make_shared<Copy>(Copy::kWaiting);
    last_[chunk.index()] = load;
    lane->Wait(after);
    lane->Run([stamp, to, load] {
      if (*load == Copy::kCancelled) return OkStatus();
      *load = Copy::kBegun;
      std::memcpy(to, &stamp, sizeof(stamp));
      return OkStatus();
    });
    return lane->Record();
  }
  template <typename Work>
  Event Stamped(const Event& after, const Event& ready, Work work) {
    if (lane == nullptr) {
      work();
      return Event();
    }
    lane->Wait(after);
    lane->Wait(ready);
    lane->Run([work] {
      work();
      return OkStatus();
    });
    return lane->Record();
  }

  std::vector<std::array<std::byte, sizeof(ChunkStamp)>> direct_data_;
  std::vector<std::shared_ptr<Copy>> last_;  // by chunk: its last load
};

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_COPIES_FAKE_CHUNK_SOURCE_H_
