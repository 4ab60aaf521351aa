// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What goes on at the same time: gathers beside reductions, which FSDP had in
// one queue (defect B10), so that a prefetch waited for a gradient that was
// called to be reduced before it; and updates beside the backward sweep.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/nvme/queue/simulated_io_queue.h"
#include "offload/twin/simulated_link.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "tests/support/fakes/altered_communicator.h"
#include "tests/support/status_matchers.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

// On a clock that counts modelled time, of which nothing takes any but
// reductions.
class ZeroEngineOverlapTest : public ZeroEngineTest {
 protected:
  struct Outcome {
    Status status;
    int64_t gathered_ns = 0;  // when the lane had what was gathered
    int64_t stepped_ns = 0;
    uint64_t digest = 0;
  };

  // Every rank hands back the gradient of the last chunk, then asks for a
  // parameter of the first.
  std::vector<Outcome> Train(int64_t reduction_ns) {
    VirtualExecutor time;
    const auto ranks = MakeInProcessWorld(
        {.world = 2, .executor = &time, .timeout_ns = 0, .clock = &time});
    std::vector<Outcome> outcomes(ranks.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks.size(); ++r) {
      threads.emplace_back([&, r] {
        VirtualParticipant turn(&time);
        AlteredCommunicator slow(
            ranks[r].get(), {.first = [&](Lane& lane) {
              if (reduction_ns == 0) return;
              lane.RunAsync([&](EventSource done) {
                time.At(time.NowNs() + reduction_ns,
                        [done = std::move(done)] { done.Complete(); });
              });
            }});
        outcomes[r].status = TrainRank(time, slow, outcomes[r]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

 private:
  static constexpr int kParams = 8;
  static constexpr int64_t kElements = 1024;  // two in a chunk

  Status TrainRank(VirtualExecutor& time, Communicator& comm,
                   Outcome& outcome) {
    ZeroOptions options = Roomy(3);
    options.executor = &time;
    options.clock = &time;
    CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<ZeroEngine> engine,
                            ZeroEngine::Create(options, &comm));
    WorkerLane lane("compute", &time);
    std::vector<ParamId> ids;
    for (int p = 0; p < kParams; ++p) {
      CASTOR_ASSIGN_OR_RETURN(
          const ParamId id,
          engine->Register({"p" + std::to_string(p), {kElements}, DType::kF32},
                           {}));
      ids.push_back(id);
    }
    CASTOR_RETURN_IF_ERROR(engine->Seal({}));
    CASTOR_RETURN_IF_ERROR(engine->BeginMicroBatch(true));
    for (const ParamId id : {ids[kParams - 1], ids[kParams - 2]}) {
      CASTOR_ASSIGN_OR_RETURN(void* const grad, engine->Grad(id, lane));
      lane.Run([grad] {
        for (int64_t i = 0; i < kElements; ++i)
          static_cast<float*>(grad)[i] = 1;
        return OkStatus();
      });
      CASTOR_RETURN_IF_ERROR(engine->GradReady(id, lane));
    }
    {
      CASTOR_ASSIGN_OR_RETURN(const ParamLease lease,
                              engine->Acquire(std::span(&ids[0], 1), lane));
      CASTOR_RETURN_IF_ERROR(lane.Drain());
      outcome.gathered_ns = time.NowNs();
    }
    CASTOR_RETURN_IF_ERROR(engine->Step(0.1).status());
    outcome.stepped_ns = time.NowNs();
    CASTOR_ASSIGN_OR_RETURN(outcome.digest, engine->WeightDigest());
    return engine->Close();
  }
};

TEST_F(ZeroEngineOverlapTest, AGatherOvertakesAReductionThatWasCalledBefore) {
  constexpr int64_t kReduction = 10'000'000;
  const std::vector<Outcome> slow = Train(kReduction);
  const std::vector<Outcome> fast = Train(0);
  for (size_t r = 0; r < slow.size(); ++r) {
    SCOPED_TRACE(testing::Message() << "rank " << r);
    ASSERT_THAT(slow[r].status, IsOk());
    ASSERT_THAT(fast[r].status, IsOk());
    EXPECT_EQ(slow[r].gathered_ns, 0);
    // The step waits for it.
    EXPECT_EQ(slow[r].stepped_ns, kReduction);
    EXPECT_EQ(slow[r].digest, fast[r].digest);
  }
}

// What was updated, as soon as it is known.
class UpdateLog final : public RunRecorder {
 public:
  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent& event) override {
    if (event.kind != RunEventKind::kUpdate) return;
    const std::lock_guard lock(mutex_);
    updated_.push_back(event.chunk);
    changed_.notify_all();
  }
  // Whether so many updates are over within ten seconds.
  bool WaitFor(size_t updates) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10),
                             [&] { return updated_.size() >= updates; });
  }
  std::vector<int32_t> updated() const {
    const std::lock_guard lock(mutex_);
    return updated_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> updated_;  // chunks; guarded by mutex_
};

// Where nothing needs all gradients first, a chunk is updated while others have
// no gradient yet, on the device and on the host.
TEST_F(OneRankEngineTest, AnEarlyUpdateIsOverBeforeTheNextGradientIsThere) {
  for (const ZeroOptions& room : {Roomy(3), Tight(3, KiB(48), KiB(100))}) {
    SCOPED_TRACE(testing::Message() << "device " << room.device_budget);
    UpdateLog log;
    ZeroOptions options = room;
    options.recorder = &log;
    world_ = MakeInProcessWorld({.executor = &pool_});
    ids_.clear();
    Open(options, 6);
    SealOptions declared;
    declared.held = {{{ids_[0]}, {ids_[4], ids_[5]}}};
    ASSERT_THAT(engine_->Seal(declared), IsOk());
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    ASSERT_THAT(engine_->UpdateEarly(0.1), IsOk());
    for (int32_t chunk = 2; chunk >= 0; --chunk) {
      Backward({2 * chunk + 1, 2 * chunk});
      const auto updates = static_cast<size_t>(3 - chunk);
      ASSERT_TRUE(log.WaitFor(updates)) << "chunk " << chunk;
      EXPECT_EQ(log.updated().size(), updates);
      EXPECT_EQ(log.updated().back(), chunk);
    }
    ASSERT_THAT(engine_->Step(0.1), IsOk());
    EXPECT_THAT(log.updated(), testing::ElementsAre(2, 1, 0));
    ASSERT_THAT(engine_->Close(), IsOk());
    engine_.reset();
  }
}

// When updates were over, and when chunks were used.
class TimeLog final : public RunRecorder {
 public:
  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent& event) override {
    const std::lock_guard lock(mutex_);
    if (event.kind == RunEventKind::kUpdate && event.step == 2) {
      updated_ns_.push_back(event.end_ns);
    }
  }
  std::vector<int64_t> updated_ns() const {
    const std::lock_guard lock(mutex_);
    return updated_ns_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int64_t> updated_ns_;  // of step 2; guarded by mutex_
};

// With every state on a drive whose time is counted: the next forward has its
// first chunk when that is updated, and not when all are.
TEST_F(ZeroEngineOverlapTest, TheForwardRunsBehindTheUpdateChunkByChunk) {
  constexpr int kParams = 16;
  constexpr int64_t kElements = 1024;  // two in a chunk
  TierModel machine;
  machine.nvme_read = machine.nvme_write = LinkModel{100'000'000, 10'000};
  SimulatedLinks drive(DriveModelOf(machine));
  VirtualExecutor time;
  VirtualParticipant participant(&time);
  const auto ranks =
      MakeInProcessWorld({.executor = &time, .timeout_ns = 0, .clock = &time});
  TimeLog log;
  ZeroOptions options = Tight(3, KiB(40), KiB(112));
  options.executor = &time;
  options.clock = &time;
  options.nvme_checksums = &time;
  options.recorder = &log;
  options.make_nvme_queue = [&](size_t) {
    return MakeSimulatedIoQueue(
        {.links = &drive, .executor = &time, .timer = &time});
  };
  Result<std::unique_ptr<ZeroEngine>> made =
      ZeroEngine::Create(options, ranks[0].get());
  ASSERT_THAT(made, IsOk());
  ZeroEngine& engine = **made;
  WorkerLane lane("compute", &time);
  std::vector<ParamId> ids;
  // Registered against the order of use, which is what counts.
  for (int p = 0; p < kParams; ++p) {
    ids.insert(ids.begin(),
               *engine.Register(
                   {"p" + std::to_string(p), {kElements}, DType::kF32}, {}));
  }
  ASSERT_THAT(engine.Seal({}), IsOk());
  std::vector<int64_t> used_ns;  // in the last forward
  for (int step = 1; step <= 3; ++step) {
    ASSERT_THAT(engine.BeginMicroBatch(true), IsOk());
    used_ns.clear();
    for (const ParamId& id : ids) {
      Result<ParamLease> lease = engine.Acquire(std::span(&id, 1), lane);
      ASSERT_THAT(lease, IsOk());
      ASSERT_THAT(lane.Drain(), IsOk());
      used_ns.push_back(time.NowNs());
    }
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      Result<void*> grad = engine.Grad(*id, lane);
      ASSERT_THAT(grad, IsOk());
      lane.Run([grad = *grad] {
        std::fill_n(static_cast<float*>(grad), kElements, 1.0f);
        return OkStatus();
      });
      ASSERT_THAT(engine.GradReady(*id, lane), IsOk());
    }
    ASSERT_THAT(engine.Step(0.1), IsOk());
  }
  std::vector<int64_t> updated_ns = log.updated_ns();
  ASSERT_EQ(updated_ns.size(), static_cast<size_t>(kParams / 2));
  EXPECT_TRUE(std::is_sorted(updated_ns.begin(), updated_ns.end()));
  for (size_t c = 0; c + 3 < updated_ns.size(); ++c) {
    EXPECT_LT(used_ns[2 * c], updated_ns[c + 3]) << "chunk " << c;
  }
  EXPECT_THAT(engine.Close(), IsOk());
}

}  // namespace
}  // namespace castor
