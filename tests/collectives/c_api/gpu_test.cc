// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// GPUs through the C ABI, over fakes of CUDA and NCCL: worlds over NCCL, whose
// ranks are threads here, and the program's own events on lanes.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/c_api/castor.h"
#include "collectives/nccl/nccl_machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_calls.h"
#include "tests/collectives/c_api/c_engine.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/fakes/fake_nccl.h"

namespace castor {
namespace {

using testing::HasSubstr;

constexpr int kParams = 6;
constexpr int kSteps = 3;
constexpr char kConfig[] =
    R"({"stage": 3, "chunk": {"bytes": "2KiB"}, "clip_norm": 0.5,
        "device_budget_bytes": "40MiB", "host_budget_bytes": "1MiB"})";

// What a rank adds to a gradient, as work of a lane.
struct Add {
  const float* values = nullptr;
  float* grads = nullptr;
  int rank = 0;
};

int32_t AddGradient(void* context) {
  const Add& add = *static_cast<Add*>(context);
  for (int64_t i = 0; i < CEngine::kElements; ++i) {
    add.grads[i] += add.values[i] * 0.125f * static_cast<float>(add.rank + 1);
  }
  return CASTOR_OK;
}

// Trains one rank with all work on `lane`; the digest of the weights. `cuda`:
// of the device; null: the host has its memory.
uint64_t Train(castor_engine* engine, castor_lane* lane, int rank,
               const FakeCuda* cuda) {
  EXPECT_GIVES(CASTOR_OK, castor_engine_use_lane(engine, lane));
  EXPECT_GIVES(CASTOR_OK, castor_engine_seal(engine, nullptr));
  for (int step = 0; step < kSteps; ++step) {
    std::array<Add, kParams> adds;
    EXPECT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine, 1));
    for (int32_t p = 0; p < kParams; ++p) {
      const void* values = nullptr;
      void* grads = nullptr;
      castor_param_lease* lease = nullptr;
      EXPECT_GIVES(CASTOR_OK,
                   castor_engine_acquire(engine, &p, 1, &values, &lease));
      EXPECT_GIVES(CASTOR_OK, castor_engine_grad(engine, p, &grads));
      Add& add = adds[static_cast<size_t>(p)];
      if (cuda != nullptr) {
        values = cuda->Reach(values);
        grads = cuda->Reach(grads);
      }
      add = {static_cast<const float*>(values), static_cast<float*>(grads),
             rank};
      EXPECT_GIVES(CASTOR_OK, castor_lane_run(lane, AddGradient, &add));
      EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
      EXPECT_GIVES(CASTOR_OK, castor_engine_grad_ready(engine, p));
    }
    EXPECT_GIVES(CASTOR_OK, castor_engine_step(engine, 0.1, nullptr));
    EXPECT_GIVES(CASTOR_OK, castor_lane_drain(lane));
  }
  uint64_t digest = 0;
  EXPECT_GIVES(CASTOR_OK, castor_engine_weight_digest(engine, &digest));
  return digest;
}

// One rank on a device of `world`.
uint64_t TrainRank(castor_world* world, castor_device* device, int rank,
                   const FakeCuda* cuda = nullptr) {
  castor_lane* lane = nullptr;
  EXPECT_GIVES(CASTOR_OK, castor_lane_create(world, device, &lane));
  uint64_t digest = 0;
  {
    const CEngine engine(world, rank, kParams, kConfig, device);
    digest = Train(engine.get(), lane, rank, cuda);
  }
  EXPECT_GIVES(CASTOR_OK, castor_lane_destroy(lane));
  return digest;
}

void OnEveryRank(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

uint64_t DigestOfThreads(int ranks) {
  const CWorld world(ranks);
  std::vector<uint64_t> digests(static_cast<size_t>(ranks));
  OnEveryRank(ranks, [&](int rank) {
    castor_device* device = nullptr;
    EXPECT_GIVES(CASTOR_OK,
                 castor_device_open_simulated(world.get(), 48 << 20, &device));
    digests[static_cast<size_t>(rank)] = TrainRank(world.get(), device, rank);
    EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device));
  });
  EXPECT_EQ(digests.front(), digests.back());
  return digests.front();
}

class GpuTest : public testing::Test {
 protected:
  GpuTest() { ReplaceNcclMachine({.cuda = &cuda_, .nccl = &nccl_}); }
  ~GpuTest() override {
    castor_set_interrupt(nullptr, nullptr);
    ReplaceNcclMachine({});
  }

  FakeCuda cuda_{{.devices = 2}};
  FakeNccl nccl_{&cuda_};
};

castor_world_options Options(int64_t timeout_ms = 20'000, int32_t gpu = 0) {
  castor_world_options options = CASTOR_INIT(castor_world_options);
  options.threads = 1;
  options.timeout_ms = timeout_ms;
  options.gpu = gpu;
  return options;
}

TEST_F(GpuTest, RanksThatAreGpusTrainToTheBitsOfThreads) {
  constexpr int kRanks = 3;
  const uint64_t expected = DigestOfThreads(kRanks);
  castor_nccl_unique_id id;
  ASSERT_GIVES(CASTOR_OK, castor_nccl_id(&id));
  OnEveryRank(kRanks, [&](int rank) {
    const int32_t gpu = rank % 2;
    const castor_world_options options = Options(20'000, gpu);
    castor_world* world = nullptr;
    ASSERT_GIVES(CASTOR_OK,
                 castor_world_create_nccl(rank, kRanks, &id, &options, &world));
    castor_engine* engine = nullptr;
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
                 castor_engine_create(world, rank, nullptr, nullptr, &engine));
    EXPECT_THAT(castor_last_error(), HasSubstr("castor_device_open_cuda"));
    castor_device* device = nullptr;
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
                 castor_device_open_cuda(world, 1 - gpu, &device));
    ASSERT_GIVES(CASTOR_OK, castor_device_open_cuda(world, gpu, &device));
    castor_device_info info = CASTOR_INIT(castor_device_info);
    EXPECT_GIVES(CASTOR_OK, castor_device_get_info(device, &info));
    EXPECT_EQ(info.kind, CASTOR_DEVICE_CUDA);
    EXPECT_EQ(info.ordinal, gpu);
    EXPECT_EQ(TrainRank(world, device, rank, &cuda_), expected);
    EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device));
    EXPECT_GIVES(CASTOR_OK, castor_world_destroy(world));
  });
}

TEST_F(GpuTest, AnIdIsForOneWorldThatRankZeroMadeItFor) {
  castor_nccl_unique_id id;
  castor_world* world = nullptr;
  const castor_world_options options = Options();
  ASSERT_GIVES(CASTOR_OK, castor_nccl_id(&id));
  castor_nccl_unique_id other;
  ASSERT_GIVES(CASTOR_OK, castor_nccl_id(&other));
  EXPECT_NE(std::memcmp(&id, &other, sizeof(id)), 0);
  ASSERT_GIVES(CASTOR_OK,
               castor_world_create_nccl(0, 1, &id, &options, &world));
  EXPECT_GIVES(CASTOR_OK, castor_world_destroy(world));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
               castor_world_create_nccl(0, 1, &id, &options, &world));
  EXPECT_EQ(world, nullptr);
  EXPECT_THAT(castor_last_error(), HasSubstr("castor_nccl_id for each world"));
  ASSERT_GIVES(CASTOR_OK,
               castor_world_create_nccl(0, 1, &other, nullptr, &world));
  EXPECT_GIVES(CASTOR_OK, castor_world_destroy(world));
}

TEST_F(GpuTest, SaysThatThereIsNoSuchGpu) {
  castor_nccl_unique_id id;
  castor_world* world = nullptr;
  const castor_world_options options = Options(20'000, 7);
  ASSERT_GIVES(CASTOR_OK, castor_nccl_id(&id));
  EXPECT_GIVES(CASTOR_UNAVAILABLE,
               castor_world_create_nccl(0, 1, &id, &options, &world));
  EXPECT_THAT(castor_last_error(), HasSubstr("device 7"));
  // The id serves once the GPU is right.
  EXPECT_GIVES(CASTOR_OK, castor_world_create_nccl(0, 1, &id, nullptr, &world));
  EXPECT_GIVES(CASTOR_OK, castor_world_destroy(world));
}

TEST_F(GpuTest, ARankThatDoesNotComeIsNamed) {
  castor_nccl_unique_id id;
  castor_world* world = nullptr;
  const castor_world_options options = Options(300);
  ASSERT_GIVES(CASTOR_OK, castor_nccl_id(&id));
  EXPECT_GIVES(CASTOR_UNAVAILABLE,
               castor_world_create_nccl(0, 2, &id, &options, &world));
  EXPECT_THAT(castor_last_error(), HasSubstr("rank 1"));
  EXPECT_EQ(world, nullptr);
}

// Of the two ranks that come, each is interrupted alone, and hears of the other
// where it was not.
TEST_F(GpuTest, AnInterruptEndsTheWaitForOtherRanks) {
  for (const int interrupted : {0, 1}) {
    castor_nccl_unique_id id;
    ASSERT_GIVES(CASTOR_OK, castor_nccl_id(&id));
    static std::atomic<std::thread::id> whose;
    static std::atomic<int> asked;
    whose = std::thread::id();
    asked = 0;
    castor_set_interrupt(
        [](void*) -> int32_t {
          return std::this_thread::get_id() == whose.load() && ++asked >= 3;
        },
        nullptr);
    const castor_world_options options = Options(-1);
    if (interrupted == 0) {
      OnEveryRank(2, [&](int rank) {
        if (rank == 0) whose = std::this_thread::get_id();
        castor_world* world = nullptr;
        EXPECT_GIVES(CASTOR_ABORTED,
                     castor_world_create_nccl(rank, 3, &id, &options, &world));
        EXPECT_EQ(world, nullptr);
        EXPECT_THAT(castor_last_error(),
                    HasSubstr("rank 0 was told to wait for the other ranks"));
      });
    } else {
      whose = std::this_thread::get_id();
      castor_world* world = nullptr;
      EXPECT_GIVES(CASTOR_ABORTED,
                   castor_world_create_nccl(1, 3, &id, &options, &world));
      EXPECT_THAT(castor_last_error(), HasSubstr("rank 1 was told"));
    }
    EXPECT_EQ(asked, 3);
  }
}

// A lane of Castor's own on the fake, and one over a stream of the program's.
class LaneEventTest : public GpuTest {
 protected:
  LaneEventTest() {
    EXPECT_GIVES(CASTOR_OK, castor_device_open_cuda(world_.get(), 0, &device_));
    EXPECT_EQ(cuda_.RetainContext(0, &context_), kCudaOk);
    EXPECT_EQ(cuda_.PushContext(context_), kCudaOk);
    EXPECT_EQ(cuda_.StreamCreate(&stream_), kCudaOk);
    EXPECT_EQ(cuda_.EventCreate(CudaCalls::EventTimes::kNone, &event_),
              kCudaOk);
    EXPECT_GIVES(CASTOR_OK,
                 castor_lane_create(world_.get(), device_, &lanes_[0]));
    EXPECT_GIVES(CASTOR_OK,
                 castor_lane_adopt_stream(device_, stream_, &lanes_[1]));
  }
  ~LaneEventTest() override {
    for (castor_lane* lane : lanes_) {
      EXPECT_GIVES(CASTOR_OK, castor_lane_destroy(lane));
    }
    EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device_));
    EXPECT_EQ(cuda_.EventDestroy(event_), kCudaOk);
    EXPECT_EQ(cuda_.StreamDestroy(stream_), kCudaOk);
    EXPECT_EQ(cuda_.PopContext(), kCudaOk);
    EXPECT_EQ(cuda_.ReleaseContext(0), kCudaOk);
  }

  // Keeps what is queued on `lane` from running until `*go`. The trainer does
  // that to its own stream by a kernel of its own.
  void Hold(castor_lane* lane, std::atomic<bool>* go) {
    if (lane == lanes_[1]) {
      cuda_.Launch(
          stream_, [] {}, [go] { return go->load(); });
      return;
    }
    EXPECT_GIVES(CASTOR_OK,
                 castor_lane_run(
                     lane,
                     [](void* context) -> int32_t {
                       while (!*static_cast<std::atomic<bool>*>(context)) {
                         std::this_thread::yield();
                       }
                       return CASTOR_OK;
                     },
                     go));
  }
  void Set(castor_lane* lane, std::atomic<bool>* flag) {
    if (lane == lanes_[1]) {
      cuda_.Launch(stream_, [flag] { *flag = true; });
      return;
    }
    EXPECT_GIVES(CASTOR_OK, castor_lane_run(
                                lane,
                                [](void* context) -> int32_t {
                                  *static_cast<std::atomic<bool>*>(context) =
                                      true;
                                  return CASTOR_OK;
                                },
                                flag));
  }

  CWorld world_{1};
  castor_device* device_ = nullptr;
  CudaContext context_ = nullptr;
  CudaStream stream_ = nullptr;
  CudaEvent event_ = nullptr;
  std::array<castor_lane*, 2> lanes_ = {};
};

constexpr std::chrono::milliseconds kMoment{20};

// What is awaited is the record before the call, also where the lane comes to
// it only after the next record.
TEST_F(LaneEventTest, ALaneWaitsForTheLastRecordOfAnEvent) {
  for (castor_lane* lane : lanes_) {
    CudaStream other = nullptr;
    ASSERT_EQ(cuda_.StreamCreate(&other), kCudaOk);
    std::atomic<bool> first = false, second = false, came = false;
    cuda_.Launch(
        other, [] {}, [&first] { return first.load(); });
    ASSERT_EQ(cuda_.EventRecord(event_, other), kCudaOk);
    std::atomic<bool> go = false;
    Hold(lane, &go);
    ASSERT_GIVES(CASTOR_OK, castor_lane_wait_event(lane, event_));
    Set(lane, &came);
    cuda_.Launch(
        other, [] {}, [&second] { return second.load(); });
    ASSERT_EQ(cuda_.EventRecord(event_, other), kCudaOk);
    go = true;
    std::this_thread::sleep_for(kMoment);
    EXPECT_FALSE(came);
    first = true;
    EXPECT_GIVES(CASTOR_OK, castor_lane_drain(lane));
    EXPECT_TRUE(came);
    second = true;
    EXPECT_EQ(cuda_.StreamSynchronize(other), kCudaOk);
    EXPECT_EQ(cuda_.StreamDestroy(other), kCudaOk);
  }
}

// The record is there when the call returns, though the lane is held.
TEST_F(LaneEventTest, AnEventIsRecordedBehindWhatIsQueued) {
  for (castor_lane* lane : lanes_) {
    std::atomic<bool> go = false, came = false;
    Hold(lane, &go);
    Set(lane, &came);
    std::thread later([&go] {
      std::this_thread::sleep_for(kMoment);
      go = true;
    });
    ASSERT_GIVES(CASTOR_OK, castor_lane_record_event(lane, event_));
    EXPECT_EQ(cuda_.EventSynchronize(event_), kCudaOk);
    EXPECT_TRUE(came);
    later.join();
  }
}

TEST_F(LaneEventTest, AnEventThatCudaRefusesIsTheCallsFailureAndNotTheLanes) {
  int none = 0;
  for (castor_lane* lane : lanes_) {
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT, castor_lane_wait_event(lane, &none));
    EXPECT_THAT(castor_last_error(), HasSubstr("cudaStreamWaitEvent"));
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
                 castor_lane_record_event(lane, &none));
    EXPECT_THAT(castor_last_error(), HasSubstr("cudaEventRecord"));
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
                 castor_lane_wait_event(lane, nullptr));
    std::atomic<bool> came = false;
    Set(lane, &came);
    EXPECT_GIVES(CASTOR_OK, castor_lane_drain(lane));
    EXPECT_TRUE(came);
  }
}

TEST_F(LaneEventTest, ALaneThatFailedRecordsNothingAndSaysWhy) {
  ASSERT_GIVES(CASTOR_OK, castor_lane_run(
                              lanes_[0],
                              [](void*) -> int32_t {
                                castor_set_error("the sampler is broken");
                                return CASTOR_IO_ERROR;
                              },
                              nullptr));
  EXPECT_GIVES(CASTOR_IO_ERROR, castor_lane_record_event(lanes_[0], event_));
  EXPECT_THAT(castor_last_error(), HasSubstr("the sampler is broken"));
}

TEST_F(LaneEventTest, OtherLanesKnowNoEvents) {
  castor_device* simulated = nullptr;
  ASSERT_GIVES(CASTOR_OK,
               castor_device_open_simulated(world_.get(), 1 << 20, &simulated));
  for (castor_device* device :
       {simulated, static_cast<castor_device*>(nullptr)}) {
    castor_lane* lane = nullptr;
    ASSERT_GIVES(CASTOR_OK, castor_lane_create(world_.get(), device, &lane));
    EXPECT_GIVES(CASTOR_UNAVAILABLE, castor_lane_wait_event(lane, event_));
    EXPECT_GIVES(CASTOR_UNAVAILABLE, castor_lane_record_event(lane, event_));
    EXPECT_THAT(castor_last_error(), HasSubstr("castor_lane_wait"));
    EXPECT_GIVES(CASTOR_OK, castor_lane_destroy(lane));
  }
  EXPECT_GIVES(CASTOR_OK, castor_device_destroy(simulated));
}

}  // namespace
}  // namespace castor
