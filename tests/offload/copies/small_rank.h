// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_COPIES_SMALL_RANK_H_
#define CASTOR_TESTS_OFFLOAD_COPIES_SMALL_RANK_H_

// A rank of a few chunks, slots and one staging slot, whose copies, drive,
// optimizer and trainer get done when the test says so: a program of calls,
// played in one order of completions. One thread.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/memory_manager.h"
#include "offload/shards/host_window.h"
#include "offload/shards/shard_store.h"
#include "placement/run_event.h"
#include "tests/offload/copies/small_rank_memory.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/fakes/order_explorer.h"
#include "tests/support/status_matchers.h"

namespace castor::small_rank {

// One replay. All runs on this thread: where it waits, others go on.
class SmallRank final : public ChunkSource, public EventWaiter {
 public:
  SmallRank(const Setting& setting, Memory* memory, OrderExplorer* orders)
      : memory_(*memory),
        orders_(*orders),
        turns_(setting.turns),
        versions_(static_cast<size_t>(setting.chunks), 0),
        tickets_(versions_.size()),
        pins_(versions_.size()),
        windows_(versions_.size()),
        worked_(versions_.size()),
        outer_(EventWaiter::Exchange(this)) {
    if (setting.thread) {
      lane_ = std::make_unique<ThreadLane>("compute");
    } else {
      lane_ = std::make_unique<WorkerLane>("compute", &memory_.executor);
    }
    updates_ = std::make_unique<WorkerLane>("updates", &memory_.executor);
    ShardStoreOptions store;
    store.pools = memory_.pools.get();
    store.clock = &clock_;
    store.staging_class = 1;
    store.staging_slots = 1 + setting.fetch_slots;
    store.fetch_slots = setting.fetch_slots;
    store_ = std::make_unique<ShardStore>(store);
    AlignedBytes bytes(kSize);
    for (int32_t c = 0; c < setting.chunks; ++c) {
      const ChunkId chunk(c);
      const Tier home = c == 0 ? setting.home : Tier::kNvme;
      EXPECT_THAT(store_->AddShard(chunk, StateKind::kParam, home, 0, kSize),
                  IsOk());
      EXPECT_THAT(store_->AddShard(chunk, StateKind::kGrad, home, 0, kSize),
                  IsOk());
      PutStamp(bytes.data(), Stamp(chunk));
      EXPECT_THAT(store_->WriteNow(chunk, StateKind::kParam, bytes.data()),
                  IsOk());
    }
    MemoryManagerOptions manager;
    manager.device = &memory_.pools->pool(Tier::kDevice);
    manager.problem.param_class.assign(versions_.size(), 0);
    manager.problem.grad_class.assign(versions_.size(), 0);
    manager.problem.fetch_cost.assign(versions_.size(), 1);
    manager.problem.survives_step.assign(versions_.size(), false);
    manager.problem.slots = {setting.slots};
    manager.problem.prefetch.depth = setting.depth;
    manager.policy = setting.policy;
    manager.source = this;
    manager.clock = &clock_;
    manager_ = std::make_unique<MemoryManager>(std::move(manager));
  }
  ~SmallRank() override {
    pins_.clear();
    EXPECT_THAT(manager_->Close(), IsOk());
    EXPECT_THAT(store_->Close(), IsOk());
    manager_.reset();
    store_.reset();
    lane_.reset();
    updates_.reset();
    EXPECT_EQ(memory_.executor.pending(), 0u);
    EXPECT_EQ(memory_.timer.held(), 0u);
    EventWaiter::Exchange(outer_);
  }

  // Each call, and all that it leads to, first in first out.
  void Run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      Make(call);
      while (Others() > 0) GoOn(0);
    }
  }

  // In the order that is explored. The trainer's next call is a choice, too.
  void Explore(const std::vector<Call>& calls) {
    exploring_ = true;
    size_t next = 0;
    for (;;) {
      const size_t others = Others();
      const size_t choices = others + (next < calls.size() ? 1 : 0);
      if (choices == 0) break;
      const size_t choice = orders_.Choose(choices);
      if (choice == others) {
        Make(calls[next++]);
      } else {
        GoOn(choice);
      }
    }
    exploring_ = false;
    EXPECT_EQ(served_, asked_) << "uses wait for what nobody does";
    EXPECT_EQ(updated_, updates_asked_);
    EXPECT_EQ(wrong_, 0);
    EXPECT_EQ(store_->staging().waiting(), 0);
    EXPECT_EQ(store_->staging().here(), store_->staging().slots());
  }

  const MemoryManagerStats& stats() const { return manager_->stats(); }
  int64_t staging_waits() const { return store_->staging().waits(); }

  Event Gather(ChunkId chunk, const Slot& slot, RunCause cause,
               int64_t) override {
    LoadTicket& ticket = tickets_[chunk.index()] = LoadTicket();
    return store_->Load(chunk, StateKind::kParam, kAll, slot.data,
                        slot.free_after, cause, &ticket);
  }
  std::byte* DirectData(ChunkId) override { return nullptr; }
  Event DirectReady(ChunkId) override { return Event(); }
  void DirectUsed(ChunkId, Event) override {}
  bool Cancellable(ChunkId) const override { return true; }
  bool Cancel(ChunkId chunk) override {
    return store_->Cancel(tickets_[chunk.index()]);
  }
  void Raise(ChunkId chunk) override { store_->Raise(tickets_[chunk.index()]); }

  // The owner thread waits, and the others go on.
  void WaitFor(const Event& event) override {
    for (;;) {
      const size_t others = Others();
      if (event.done()) return;
      // It could not even be taken down.
      CASTOR_CHECK_GT(others, size_t{0});
      GoOn(exploring_ ? orders_.Choose(others) : 0);
    }
  }

 private:
  static constexpr int64_t kChunks = 16;  // a stamp is version and chunk

  int64_t Stamp(ChunkId chunk) const {
    return versions_[chunk.index()] * kChunks + chunk.value();
  }
  static int64_t StampAt(const std::byte* data) {
    int64_t stamp = 0;
    std::memcpy(&stamp, data, sizeof(stamp));
    return stamp;
  }
  static void PutStamp(std::byte* data, int64_t stamp) {
    std::memcpy(data, &stamp, sizeof(stamp));
  }

  // How many things there are, besides the trainer, of which one can end now.
  size_t Others() {
    if (!exploring_ || !turns_) memory_.executor.RunAll();
    if (!at_drive_) at_drive_ = memory_.io->Take();
    return memory_.executor.pending() + memory_.timer.held() +
           (at_drive_ ? 1 : 0);
  }
  void GoOn(size_t which) {
    const size_t turns = memory_.executor.pending();
    if (which < turns) {
      memory_.executor.RunOne(which);
    } else if (which - turns < memory_.timer.held()) {
      memory_.timer.End(which - turns);
    } else {
      memory_.Finish(*std::exchange(at_drive_, std::nullopt));
    }
  }
  // `work` begins when the lane gets there, and ends when the test says so.
  template <typename Work>
  void Queue(Lane& lane, Work work) {
    lane.RunAsync([this, work](EventSource end) {
      memory_.timer.At(0, [work, end = std::move(end)] {
        work();
        end.Complete();
      });
    });
  }

  void Make(const Call& call) {
    const ChunkId chunk(call.chunk);
    switch (call.kind) {
      case Call::kUse:
        Hold(chunk);
        pins_[chunk.index()].Release();
        break;
      case Call::kHold:
        Hold(chunk);
        break;
      case Call::kLet:
        pins_[chunk.index()].Release();
        break;
      case Call::kGrad:
        StoreGrad(chunk);
        break;
      case Call::kEnd:
        EXPECT_THAT(manager_->EndStep(), IsOk());
        break;
      case Call::kUpdate:
        Open(chunk);
        Close(chunk);
        break;
      case Call::kOpen:
        Open(chunk);
        break;
      case Call::kClose:
        Close(chunk);
        break;
      case Call::kBegin:
        manager_->BeginStep(++step_);
        break;
    }
  }

  void Hold(ChunkId chunk) {
    ++asked_;
    Result<ChunkPin> pin = manager_->Acquire(chunk, *lane_);
    ASSERT_THAT(pin, IsOk());
    Queue(*lane_, [this, data = pin->data(), want = Stamp(chunk)] {
      ++served_;
      wrong_ += StampAt(data) != want;
    });
    pins_[chunk.index()] = *std::move(pin);
  }

  void StoreGrad(ChunkId chunk) {
    ++asked_;
    const Result<Slot> slot = manager_->OpenGrad(chunk);
    ASSERT_THAT(slot, IsOk());
    lane_->Wait(slot->free_after);
    Queue(*lane_, [this, data = slot->data, stamp = Stamp(chunk)] {
      ++served_;
      PutStamp(data, stamp);
    });
    const Event copied =
        store_->Store(chunk, StateKind::kGrad, kAll, slot->data,
                      lane_->Record(), RunCause::kGradient);
    manager_->CloseGrad(chunk, *slot, copied);
  }

  void Open(ChunkId chunk) {
    ++updates_asked_;
    HostWindow& window = windows_[chunk.index()];
    window = store_->OpenWindow(chunk, StateKind::kParam, kAll,
                                WindowMode::kReadWrite, RunCause::kOptimizer);
    updates_->Wait(window.ready);
    Queue(*updates_, [this, bytes = window.bytes(), want = Stamp(chunk)] {
      ++updated_;
      wrong_ += StampAt(bytes.get()) != want;
      PutStamp(bytes.get(), want + kChunks);
    });
    worked_[chunk.index()] = updates_->Record();
    ++versions_[chunk.index()];
  }
  void Close(ChunkId chunk) {
    store_->CloseWindow(std::move(windows_[chunk.index()]),
                        worked_[chunk.index()]);
  }

  Memory& memory_;
  OrderExplorer& orders_;
  const bool turns_;
  bool exploring_ = false;
  FakeClock clock_;
  std::unique_ptr<Lane> lane_;
  std::unique_ptr<WorkerLane> updates_;
  std::unique_ptr<ShardStore> store_;
  std::unique_ptr<MemoryManager> manager_;
  std::optional<ManualIo::Transfer> at_drive_;
  std::vector<int64_t> versions_;    // by chunk, as of the calls made
  std::vector<LoadTicket> tickets_;  // by chunk: of its last gather
  std::vector<ChunkPin> pins_;       // by chunk
  std::vector<HostWindow> windows_;  // by chunk, while it is open
  std::vector<Event> worked_;        // by chunk: the work in its window
  EventWaiter* const outer_;
  int32_t step_ = 0;
  int64_t asked_ = 0, served_ = 0;
  int64_t updates_asked_ = 0, updated_ = 0;
  int64_t wrong_ = 0;
};

}  // namespace castor::small_rank

#endif  // CASTOR_TESTS_OFFLOAD_COPIES_SMALL_RANK_H_
