// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// That nothing ever waits for itself, by trying: a rank of two or three chunks,
// with fewer slots than chunks and one staging slot, in every order in which
// its copies, its drive, its optimizer and its trainer may get done with what
// they do. In each of them every access is served, with the right bytes.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "offload/host_window.h"
#include "offload/lane.h"
#include "offload/memory_manager.h"
#include "offload/nvme/io_queue.h"
#include "offload/rank_pools.h"
#include "offload/shard_store.h"
#include "offload/simulated_device.h"
#include "offload/simulated_link.h"
#include "offload/staging_ring.h"
#include "offload/tier_pool.h"
#include "offload/timer.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fake_clock.h"
#include "tests/support/manual_executor.h"
#include "tests/support/manual_io_queue.h"
#include "tests/support/order_explorer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

constexpr Bytes kSize = KiB(4);  // of a chunk, of its shard, of every slot
constexpr ByteRange kAll{Bytes(0), kSize};

// One call of the owner thread; a letter of a program below.
struct Call {
  enum Kind : char {
    kUse = 'u',     // acquire, queue work, release
    kHold = 'h',    // acquire and queue work
    kLet = 'l',     // release
    kGrad = 'g',    // a gradient is computed and stored
    kEnd = 'e',     // of the step
    kUpdate = 'w',  // read, change and write back, in a window
    kOpen = 'o',    // that window alone
    kClose = 'c',   // the rest
    kBegin = 'b',   // of the step
  };
  Kind kind;
  int32_t chunk;
};

// "u0 w0 e": calls by letter and chunk.
std::vector<Call> Program(const std::string& text) {
  std::vector<Call> calls;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    Call call{static_cast<Call::Kind>(text[i]), 0};
    if (i + 1 < text.size() && text[i + 1] != ' ') call.chunk = text[++i] - '0';
    calls.push_back(call);
  }
  return calls;
}

struct Setting {
  int32_t chunks;
  int64_t slots;
  int depth;
  // The trainer computes on its own thread, which then waits where a GPU's
  // would go on.
  bool thread;
  std::string before;    // the first step, in the order of the posts
  std::string explored;  // from there on, in every order
  PlanPolicy policy = PlanPolicy::kAuto;
  Tier home = Tier::kNvme;  // of chunk 0; of all others it is NVMe
  // Every order of the turns of lanes, too, and not only of what takes time.
  bool turns = false;
};

// Whose tasks are all due, in the order that the test likes: what takes time
// ends when the test says so.
class HeldTimer final : public Timer {
 public:
  int64_t NowNs() const override { return 0; }
  void At(int64_t, Task task) override { tasks_.push_back(std::move(task)); }

  size_t held() const { return tasks_.size(); }
  void End(size_t which) {
    Task task = std::move(tasks_[which]);
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(which));
    task();
  }

 private:
  std::vector<Task> tasks_;
};

// What a replay need not make anew, and what is done when the test says so.
struct Memory {
  explicit Memory(const Setting& setting) {
    const int64_t shards = 2 * setting.chunks;
    RankPoolsOptions options;
    options.device = &device;
    options.device_budget = options.host_budget = options.nvme_budget = MiB(1);
    options.device_classes = {{kSize, setting.slots}};
    options.host_classes = {{kSize, shards}, {kSize, 1}};
    options.nvme_classes = {{kSize, shards}};
    options.nvme_drives = {{dir.path(), {}}};
    options.make_nvme_queue = [this](size_t) { return MakeManualIoQueue(io); };
    options.nvme_checksums = &executor;
    pools = *RankPools::Create(std::move(options));
  }

  static SimulatedDeviceOptions Twin(Memory* of) {
    const LinkModel slow{1'000'000'000, 1'000};
    return {.capacity = MiB(1),
            .links = {slow, slow, slow},
            .executor = &of->executor,
            .timer = &of->timer};
  }

  // What a drive does, in memory.
  void Finish(ManualIo::Transfer transfer) {
    std::byte* const there = drive.data() + transfer.offset.count();
    const auto size = static_cast<size_t>(transfer.size.count());
    if (transfer.direction == IoDirection::kRead) {
      std::memcpy(transfer.data, there, size);
    } else {
      std::memcpy(there, transfer.data, size);
    }
    io->Moved(std::move(transfer));
  }

  TempDir dir;
  AlignedBytes drive{MiB(1)};
  ManualExecutor executor;
  HeldTimer timer;
  SimulatedDevice device{Twin(this)};
  std::shared_ptr<ManualIo> io = std::make_shared<ManualIo>(MiB(1));
  std::unique_ptr<RankPools> pools;
};

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
    store.executor = &memory_.executor;
    store.clock = &clock_;
    store.staging_class = 1;
    store.staging_slots = 1;
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
    manager.problem.prefetch_depth = setting.depth;
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

class CompletionOrdersTest : public testing::Test {
 protected:
  void Explore(const Setting& setting) {
    SCOPED_TRACE(setting.explored);
    Memory memory(setting);
    OrderExplorer orders;
    do {
      SmallRank rank(setting, &memory, &orders);
      rank.Run(Program(setting.before));
      rank.Explore(Program(setting.explored));
      prefetched_ += rank.stats().prefetched_gathers;
      cancelled_ += rank.stats().cancelled_gathers;
      staging_waits_ += rank.staging_waits();
    } while (!HasFailure() && orders.Next());
    std::cout << orders.orders() << " orders of " << setting.explored << ", "
              << setting.chunks << " chunks in " << setting.slots
              << " slots, prefetch " << setting.depth
              << (setting.thread ? ", on a thread" : "")
              << (setting.turns ? ", with turns of lanes" : "") << "\n";
    orders_ += orders.orders();
  }

  int64_t orders_ = 0;
  // In some order.
  int64_t prefetched_ = 0;
  int64_t cancelled_ = 0;
  int64_t staging_waits_ = 0;
};

TEST_F(CompletionOrdersTest, EveryAccessIsServedInEveryOrder) {
  const std::vector<Setting> settings = {
      // On demand, one slot for two chunks; and ahead.
      {2, 1, 0, false, "b u0 u1 e b", "u0 u1"},
      {2, 1, 1, false, "b u0 u1 e b", "u0 u1"},
      {2, 1, 0, true, "b u0 u1 e", "w0 w1 b u0 u1"},
      {2, 1, 1, true, "b u0 u1 e", "w0 w1 b u0 u1"},
      {2, 1, 1, false, "b u0 u1 e", "w0 b u0 u1", PlanPolicy::kPlanned},
      // What is fetched ahead is not what comes.
      {2, 1, 1, false, "b u0 u1 e", "w0 b u1 u0"},
      {2, 1, 1, true, "b u0 u1 e", "w0 w1 b u1 u0"},
      // A window holds the staging slot while others ask for it.
      {2, 1, 0, false, "b u0 u1 e", "o0 b u1 c0 u0"},
      {2, 2, 1, false, "b u0 u1 e b", "u0 o1 u0 c1"},
      // Gradients take slots and staging on their way out.
      {2, 2, 1, true, "b h0 u1 l0 g1 e", "w1 b h0 u1 l0 g1"},
      {2, 2, 1, false, "b u0 g0 e", "w0 b u0 g0"},
      {2, 1, 1, true, "b u0 g0 u1 g1 e", "w0 b u0 g0 u1 g1"},
      // Homes on two tiers, which only meet in the ring.
      {2, 1, 1, true, "b u0 u1 e", "w0 w1 b u0 u1", PlanPolicy::kAuto,
       Tier::kHost},
      // Three chunks in two slots.
      {3, 2, 1, true, "b u0 u1 u2 u1 e", "w0 b u0 u1 u2 u1"},
      // The turns of lanes, too.
      {2, 1, 0, false, "b u0 u1 e b", "u0", PlanPolicy::kAuto, Tier::kNvme,
       true},
  };
  for (size_t i = 0; i < settings.size() && !HasFailure();
       i += static_cast<size_t>(TestStride())) {
    Explore(settings[i]);
  }
  std::cout << orders_ << " orders in all\n";
  if (TestStride() > 1) return;
  EXPECT_GT(orders_, 500);
  EXPECT_GT(prefetched_, 0);
  EXPECT_GT(cancelled_, 0);
  EXPECT_GT(staging_waits_, 0);
}

// Each of two takes two slots, one by one, or both at once: why the ring lends
// a request all its slots together, and that an order in which two wait for
// each other is found where there is one.
TEST_F(CompletionOrdersTest, SlotsTakenOneByOneAreWaitedForAllAtOnceAreNot) {
  struct Taker {
    std::vector<Slot> slots;
    bool waits = false;
    bool done = false;
  };
  for (const int64_t at_once : {1, 2}) {
    OrderExplorer orders;
    int64_t stuck = 0;
    do {
      AlignedBytes memory(kSize * 2);
      const SlotClass two{kSize, 2};
      TierPool pool = *TierPool::Create(Tier::kHost, kSize * 2,
                                        std::span(&two, 1), memory.data());
      StagingRing ring(&pool, 0, 2);
      Taker takers[2];
      const auto give_all = [&ring](Taker& taker) {
        for (Slot& slot : std::exchange(taker.slots, {})) {
          ring.Give(std::move(slot), Event());
        }
      };
      for (;;) {
        std::vector<Taker*> able;
        for (Taker& taker : takers) {
          if (!taker.waits && !taker.done) able.push_back(&taker);
        }
        if (able.empty()) break;
        Taker& taker = *able[orders.Choose(able.size())];
        if (taker.slots.size() == 2) {
          give_all(taker);
          taker.done = true;
          continue;
        }
        taker.waits = true;
        const auto granted = [&taker](std::span<Slot> slots) {
          taker.waits = false;
          for (Slot& slot : slots) taker.slots.push_back(std::move(slot));
        };
        ASSERT_THAT(ring.Take(at_once, granted), IsOk());
      }
      stuck += !takers[0].done || !takers[1].done;
      while (ring.here() < ring.slots()) {
        for (Taker& taker : takers) give_all(taker);
      }
    } while (orders.Next());
    EXPECT_EQ(stuck > 0, at_once == 1) << stuck << " of " << orders.orders();
    EXPECT_LT(stuck, orders.orders());
  }
}

}  // namespace
}  // namespace castor
