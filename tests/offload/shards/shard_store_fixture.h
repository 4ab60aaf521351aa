// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_SHARDS_SHARD_STORE_FIXTURE_H_
#define CASTOR_TESTS_OFFLOAD_SHARDS_SHARD_STORE_FIXTURE_H_

// A ShardStore with a few small slots on every tier, a drive that misbehaves on
// cue, a clock turned by hand, and lists of what was recorded and what failed.
// Owner thread only.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/thread_io_queue.h"
#include "offload/shards/host_window.h"
#include "offload/shards/rank_pools.h"
#include "offload/shards/shard_store.h"
#include "placement/run_event.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/fakes/faulty_io_queue.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {

inline constexpr Bytes kShard(6000);    // what a shard holds
inline constexpr Bytes kSlot = KiB(8);  // its slot, on every tier
inline constexpr int kShards = 4;       // that each tier has slots for at first
inline constexpr ByteRange kWhole{Bytes(0), kShard};
inline constexpr StateKind kParam = StateKind::kParam;

class EventList final : public RunRecorder {
 public:
  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent& event) override {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  std::vector<RunEvent> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<RunEvent> events_;  // guarded by mutex_
};

// Device memory of a trainer, outside the pools, filled by `seed`.
inline AlignedBytes Filled(uint64_t seed) {
  AlignedBytes bytes(kShard);
  FillRandom(bytes.span(), seed);
  return bytes;
}

class ShardStoreFixture : public testing::Test {
 protected:
  // Stops what was queued: a lane that still waits could not end.
  ~ShardStoreFixture() override { Stop(); }

  void Open(Executor* executor, int64_t staging_slots = 5,
            int64_t slots = kShards, int64_t fetch_slots = 0,
            int64_t work_slots = 0) {
    OpenShaped(executor, kSlot, slots, {KiB(12), staging_slots}, fetch_slots,
               work_slots);
  }
  // With slots of `slot` bytes for `slots` shards on every tier.
  void OpenShaped(Executor* executor, Bytes slot, int64_t slots,
                  const SlotClass& staging, int64_t fetch_slots,
                  int64_t work_slots = 0) {
    RankPoolsOptions pools;
    pools.executor = executor;
    pools.device_classes = {{slot, slots}};
    pools.host_classes = {{slot, slots}, staging};
    pools.nvme_classes = {{slot, slots}};
    pools.device_budget = pools.host_budget = pools.nvme_budget = MiB(1);
    pools.nvme_drives = {{dir_.path(), {}}};
    pools.log = &log_;
    pools.make_nvme_queue = make_nvme_queue_;
    pools_ = *RankPools::Create(std::move(pools));
    ShardStoreOptions options;
    options.pools = pools_.get();
    options.clock = &clock_;
    options.recorder = record_ ? &events_ : nullptr;
    options.on_failure = [this](const Status& status) {
      std::lock_guard lock(failure_mutex_);
      ++failures_;
      failure_ = status;
    };
    options.rank = 3;
    options.staging_class = 1;
    options.staging_slots = staging.slots;
    options.fetch_slots = fetch_slots;
    options.work_slots = work_slots;
    store_ = std::make_unique<ShardStore>(options);
    store_->BeginStep(7);
  }
  void Stop() {
    while (manual_.RunAll() > 0) {
    }
    store_.reset();
  }
  // Cranks the manual executor while the drive's threads do their part.
  Status Crank(const Event& until) {
    while (!until.done()) {
      if (manual_.RunAll() == 0) std::this_thread::yield();
    }
    return until.status();
  }

  ChunkId Add(Tier home, int32_t chunk = 0) {
    EXPECT_THAT(store_->AddShard(ChunkId(chunk), kParam, home, 0, kShard),
                IsOk());
    return ChunkId(chunk);
  }
  // A shard that holds Filled(seed).
  ChunkId AddFilled(Tier home, uint64_t seed, int32_t chunk = 0) {
    const ChunkId id = Add(home, chunk);
    EXPECT_THAT(store_->WriteNow(id, kParam, Filled(seed).data()), IsOk());
    return id;
  }
  void ExpectHolds(ChunkId chunk, std::span<const std::byte> want) {
    AlignedBytes got(kShard);
    ASSERT_THAT(store_->ReadNow(chunk, kParam, kWhole, got.data()), IsOk());
    EXPECT_TRUE(SameBytes(got.span(), want));
  }
  HostWindow OpenWhole(ChunkId chunk, WindowMode mode) {
    return store_->OpenWindow(chunk, kParam, kWhole, mode,
                              RunCause::kOptimizer);
  }
  Event LoadWhole(ChunkId chunk, AlignedBytes& to,
                  RunCause cause = RunCause::kDemand,
                  LoadTicket* ticket = nullptr) {
    return store_->Load(chunk, kParam, kWhole, to.data(), Event(), cause,
                        ticket);
  }
  Event LoadAfter(const EventSource& begin, ChunkId chunk, AlignedBytes& to) {
    return store_->Load(chunk, kParam, kWhole, to.data(), begin.event(),
                        RunCause::kDemand);
  }
  Event StoreWhole(ChunkId chunk, const AlignedBytes& from,
                   const Event& begin = Event()) {
    return store_->Store(chunk, kParam, kWhole, from.data(), begin,
                         RunCause::kGradient);
  }
  int failures() {
    std::lock_guard lock(failure_mutex_);
    return failures_;
  }
  Status failure() {
    std::lock_guard lock(failure_mutex_);
    return failure_;
  }
  Bytes moved(Tier from, Tier to) {
    return store_->moved()[TierIndex(from)][TierIndex(to)];
  }

  TempDir dir_;
  Log log_{[](LogLevel, std::string_view) {}};
  FakeClock clock_;
  EventList events_;
  bool record_ = true;
  std::mutex failure_mutex_;
  int failures_ = 0;  // guarded by failure_mutex_
  Status failure_;    // guarded by failure_mutex_
  std::shared_ptr<IoFaults> faults_ = std::make_shared<IoFaults>();
  std::function<std::unique_ptr<IoQueue>(size_t)> make_nvme_queue_ =
      [this](size_t) {
        return MakeFaultyIoQueue(MakeThreadIoQueue({}), faults_);
      };
  ThreadPool workers_{3};
  ManualExecutor manual_;
  std::unique_ptr<RankPools> pools_;
  std::unique_ptr<ShardStore> store_;
};

class EveryHomeTest : public ShardStoreFixture,
                      public testing::WithParamInterface<Tier> {
 protected:
  Tier home() const { return GetParam(); }
};

inline std::string NameOfHome(const testing::TestParamInfo<Tier>& info) {
  return info.param == Tier::kDevice ? "Device"
         : info.param == Tier::kHost ? "Host"
                                     : "Nvme";
}

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_SHARDS_SHARD_STORE_FIXTURE_H_
