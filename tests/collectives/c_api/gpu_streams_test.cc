// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A program that has streams and device memory of its own, as one that embeds
// Castor beside a framework does.

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
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

constexpr int kParams = 6;
// Few chunks fit, and what is read too late is NaN.
constexpr char kTight[] =
    R"({"stage": 3, "chunk": {"bytes": "1KiB"}, "poison": true,
        "device_budget_bytes": "8KiB", "host_budget_bytes": "1MiB",
        "home_rules": [{"tier": "host"}]})";
constexpr size_t kBytes = CEngine::kElements * sizeof(float);

using Values = std::vector<float>;

Values Initial() {
  Values values;
  for (int64_t i = 0; i < CEngine::kElements; ++i) {
    values.push_back(static_cast<float>(i));
  }
  return values;
}

class GpuStreamsTest : public testing::Test {
 protected:
  GpuStreamsTest() {
    ReplaceNcclMachine({.cuda = &cuda_, .nccl = &nccl_});
    EXPECT_GIVES(CASTOR_OK, castor_device_open_cuda(world_.get(), 0, &device_));
    cuda_.UseDevice(0);
    for (size_t i = 0; i < streams_.size(); ++i) {
      EXPECT_EQ(cuda_.StreamCreate(&streams_[i]), kCudaOk);
      EXPECT_GIVES(CASTOR_OK,
                   castor_lane_adopt_stream(device_, streams_[i], &lanes_[i]));
    }
  }
  ~GpuStreamsTest() override {
    for (castor_lane* lane : lanes_) {
      EXPECT_GIVES(CASTOR_OK, castor_lane_destroy(lane));
    }
    EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device_));
    for (CudaStream stream : streams_) {
      EXPECT_EQ(cuda_.StreamDestroy(stream), kCudaOk);
    }
    ReplaceNcclMachine({});
  }

  void Use(const CEngine& engine, size_t lane) {
    EXPECT_GIVES(CASTOR_OK, castor_engine_use_lane(engine.get(), lanes_[lane]));
  }
  castor_param_lease* Acquire(const CEngine& engine, int32_t param,
                              const void** values) {
    castor_param_lease* lease = nullptr;
    EXPECT_GIVES(CASTOR_OK, castor_engine_acquire(engine.get(), &param, 1,
                                                  values, &lease));
    return lease;
  }
  // A kernel that takes its time, and then copies.
  void CopyLate(size_t stream, const void* from, void* to) {
    cuda_.Launch(streams_[stream],
                 [from = cuda_.Reach(from), to = cuda_.Reach(to)] {
                   std::this_thread::sleep_for(std::chrono::milliseconds(20));
                   std::memcpy(to, from, kBytes);
                 });
  }
  void Settle() {
    for (castor_lane* lane : lanes_) {
      EXPECT_GIVES(CASTOR_OK, castor_lane_drain(lane));
    }
  }

  FakeCuda cuda_;
  FakeNccl nccl_{&cuda_};
  CWorld world_{1};
  castor_device* device_ = nullptr;
  std::array<CudaStream, 2> streams_ = {};
  std::array<castor_lane*, 2> lanes_ = {};
};

TEST_F(GpuStreamsTest, ALeaseEndsBehindEveryStreamThatWasInUse) {
  constexpr int kMany = 24;  // several times the device
  {
    const CEngine engine(world_, 0, kMany, kTight, device_);
    Use(engine, 0);
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    std::vector<Values> seen(kMany,
                             Values(static_cast<size_t>(CEngine::kElements)));
    for (int32_t p = 0; p < kMany; ++p) {
      const Values own(static_cast<size_t>(CEngine::kElements),
                       static_cast<float>(p));
      EXPECT_GIVES(CASTOR_OK,
                   castor_engine_write(engine.get(), p, CASTOR_PARAM,
                                       own.data(), CEngine::kElements));
    }
    for (int32_t p = 0; p < kMany; ++p) {
      const void* values = nullptr;
      castor_param_lease* const lease = Acquire(engine, p, &values);
      // What waits for the first stream, as any program sees to.
      EXPECT_GIVES(CASTOR_OK, castor_lane_wait(lanes_[1], lanes_[0]));
      Use(engine, 1);
      CopyLate(1, values, seen[static_cast<size_t>(p)].data());
      Use(engine, 0);
      EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
    }
    Settle();
    for (size_t p = 0; p < seen.size(); ++p) {
      EXPECT_THAT(seen[p], testing::Each(static_cast<float>(p)));
    }
  }
}

TEST_F(GpuStreamsTest, BorrowedMemoryIsInUseOnEveryStreamToo) {
  const CEngine engine(world_, 0, kParams,
                       R"({"chunk": {"bytes": "1KiB"}, "poison": true,
                           "device_budget_bytes": "64KiB",
                           "host_budget_bytes": "1MiB"})",
                       device_);
  Use(engine, 0);
  castor_seal_options seal = CASTOR_INIT(castor_seal_options);
  seal.largest_lease_bytes = 4096;
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), &seal));
  void* data = nullptr;
  castor_memory_lease* lease = nullptr;
  ASSERT_GIVES(CASTOR_OK,
               castor_engine_borrow(engine.get(), 4096, &data, &lease));
  Values out(static_cast<size_t>(CEngine::kElements));
  const Values in = Initial();
  CopyLate(0, in.data(), data);
  EXPECT_GIVES(CASTOR_OK, castor_lane_wait(lanes_[1], lanes_[0]));
  Use(engine, 1);
  CopyLate(1, data, out.data());
  Use(engine, 0);
  EXPECT_GIVES(CASTOR_OK, castor_memory_lease_release(lease));
  Settle();
  EXPECT_EQ(out, in);
}

// Autograd adds up on one stream, and the end of its backward is on another.
TEST_F(GpuStreamsTest, AGradientIsReadyBehindEveryStreamThatWroteIt) {
  const CEngine engine(world_, 0, kParams, kTight, device_);
  Use(engine, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
  const Values ones(static_cast<size_t>(CEngine::kElements), 1.f);
  for (int32_t p = 0; p < kParams; ++p) {
    void* grad = nullptr;
    Use(engine, 1);
    EXPECT_GIVES(CASTOR_OK, castor_engine_grad(engine.get(), p, &grad));
    CopyLate(1, ones.data(), grad);
    Use(engine, 0);
    // Another piece, which is added to what is there.
    EXPECT_GIVES(CASTOR_OK, castor_engine_grad(engine.get(), p, &grad));
    cuda_.Launch(streams_[0], [to = static_cast<float*>(cuda_.Reach(grad))] {
      for (int64_t i = 0; i < CEngine::kElements; ++i) to[i] += 1;
    });
    EXPECT_GIVES(CASTOR_OK, castor_engine_grad_ready(engine.get(), p));
  }
  Values norms(static_cast<size_t>(CEngine::kElements));
  for (int32_t p = 0; p < kParams; ++p) {
    EXPECT_GIVES(CASTOR_OK,
                 castor_engine_read(engine.get(), p, CASTOR_GRAD, norms.data(),
                                    CEngine::kElements));
    EXPECT_THAT(norms, testing::Each(2.f)) << p;
  }
  EXPECT_GIVES(CASTOR_OK, castor_engine_abandon(engine.get()));
}

// The lane in use reads it, when the stream has come so far.
TEST_F(GpuStreamsTest, AGradientOfTheDevicesMemoryIsCopiedInTheStreamsOrder) {
  const CEngine engine(world_, 0, kParams, kTight, device_);
  Use(engine, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
  void* made = nullptr;
  ASSERT_EQ(cuda_.Malloc(kBytes, &made), kCudaOk);
  std::vector<Values> values;
  for (int32_t p = 0; p < kParams; ++p) {
    values.emplace_back(static_cast<size_t>(CEngine::kElements), p + 1.f);
  }
  for (int32_t p = 0; p < kParams; ++p) {
    Use(engine, static_cast<size_t>(p % 2));
    if (p > 0) {
      EXPECT_GIVES(CASTOR_OK,
                   castor_lane_wait(lanes_[static_cast<size_t>(p % 2)],
                                    lanes_[static_cast<size_t>(1 - p % 2)]));
    }
    // The same memory serves for all gradients, one after another.
    CopyLate(static_cast<size_t>(p % 2), values[static_cast<size_t>(p)].data(),
             made);
    EXPECT_GIVES(CASTOR_OK,
                 castor_engine_give_grad(engine.get(), p, made, kBytes));
  }
  Values seen(static_cast<size_t>(CEngine::kElements));
  for (int32_t p = 0; p < kParams; ++p) {
    EXPECT_GIVES(CASTOR_OK,
                 castor_engine_read(engine.get(), p, CASTOR_GRAD, seen.data(),
                                    CEngine::kElements));
    EXPECT_THAT(seen, testing::Each(p + 1.f)) << p;
  }
  Settle();
  EXPECT_EQ(cuda_.Free(made), kCudaOk);
  EXPECT_GIVES(CASTOR_OK, castor_engine_abandon(engine.get()));
}

constexpr char kResident[] =
    R"({"stage": 3, "chunk": {"bytes": "1KiB"}, "own_lease_ends": true,
        "device_budget_bytes": "64KiB", "host_budget_bytes": "1MiB"})";

// A forward after the backward, whose lease lives on.
TEST_F(GpuStreamsTest, WritesComeBehindReadsUnderOpenLeases) {
  const CEngine engine(world_, 0, kParams, kResident, device_);
  Use(engine, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
  const Values ones(static_cast<size_t>(CEngine::kElements), 1.f);
  void* made = nullptr;
  ASSERT_EQ(cuda_.Malloc(kBytes, &made), kCudaOk);
  CopyLate(0, ones.data(), made);
  std::array<castor_param_lease*, kParams> leases = {};
  std::array<const void*, kParams> values = {};
  for (int32_t p = 0; p < kParams; ++p) {
    const auto i = static_cast<size_t>(p);
    leases[i] = Acquire(engine, p, &values[i]);
    EXPECT_GIVES(CASTOR_OK,
                 castor_engine_give_grad(engine.get(), p, made, kBytes));
  }
  std::vector<Values> seen(kParams,
                           Values(static_cast<size_t>(CEngine::kElements)));
  const auto read_late = [&] {
    EXPECT_GIVES(CASTOR_OK, castor_lane_wait(lanes_[1], lanes_[0]));
    Use(engine, 1);
    for (size_t i = 0; i < kParams; ++i) {
      CopyLate(1, values[i], seen[i].data());
    }
    Use(engine, 0);
  };
  read_late();
  EXPECT_GIVES(CASTOR_OK, castor_engine_step(engine.get(), 0.5, nullptr));
  Settle();
  EXPECT_THAT(seen, testing::Each(Initial()));

  read_late();
  for (int32_t p = 0; p < kParams; ++p) {
    EXPECT_GIVES(CASTOR_OK,
                 castor_engine_write(engine.get(), p, CASTOR_PARAM, ones.data(),
                                     CEngine::kElements));
  }
  Settle();
  EXPECT_THAT(seen, testing::Not(testing::Contains(ones)));
  EXPECT_THAT(seen, testing::Not(testing::Contains(Initial())));
  for (castor_param_lease* lease : leases) {
    EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
  }
  Settle();
  EXPECT_EQ(cuda_.Free(made), kCudaOk);
}

TEST_F(GpuStreamsTest, ACaptureIsRefusedAndTrainingGoesOn) {
  const CEngine engine(world_, 0, kParams, kResident, device_);
  Use(engine, 0);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  const void* values = nullptr;
  EXPECT_GIVES(CASTOR_OK,
               castor_param_lease_release(Acquire(engine, 0, &values)));
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));

  cuda_.BeginCapture(streams_[0]);
  const int32_t first = 0;
  castor_param_lease* lease = nullptr;
  EXPECT_EQ(castor_engine_acquire(engine.get(), &first, 1, &values, &lease),
            CASTOR_FAILED_PRECONDITION);
  EXPECT_EQ(lease, nullptr);
  EXPECT_THAT(castor_last_error(), testing::HasSubstr("capture"));
  void* grad = nullptr;
  EXPECT_EQ(castor_engine_grad(engine.get(), 0, &grad),
            CASTOR_FAILED_PRECONDITION);
  EXPECT_EQ(castor_lane_wait(lanes_[1], lanes_[0]), CASTOR_FAILED_PRECONDITION);
  EXPECT_EQ(castor_lane_wait(lanes_[0], lanes_[1]), CASTOR_FAILED_PRECONDITION);
  EXPECT_EQ(cuda_.EndCapture(streams_[0]), kCudaOk);

  // Nor may a write wait for a lane that was in use and is captured now.
  lease = Acquire(engine, 0, &values);
  Use(engine, 1);
  cuda_.BeginCapture(streams_[0]);
  const Values twos(static_cast<size_t>(CEngine::kElements), 2.f);
  EXPECT_EQ(castor_engine_write(engine.get(), 0, CASTOR_PARAM, twos.data(),
                                CEngine::kElements),
            CASTOR_FAILED_PRECONDITION);
  EXPECT_EQ(cuda_.EndCapture(streams_[0]), kCudaOk);
  Use(engine, 0);
  EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));

  lease = Acquire(engine, 0, &values);
  EXPECT_GIVES(CASTOR_OK, castor_engine_grad(engine.get(), 0, &grad));
  const Values ones(static_cast<size_t>(CEngine::kElements), 1.f);
  CopyLate(0, ones.data(), grad);
  EXPECT_GIVES(CASTOR_OK, castor_engine_grad_ready(engine.get(), 0));
  EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
  EXPECT_GIVES(CASTOR_OK, castor_engine_step(engine.get(), 0.5, nullptr));
  Settle();
}

// A caching allocator gives a block whose last kernels have not run yet, and
// takes one back for kernels that come next.
TEST_F(GpuStreamsTest, AnAllocatorsMemoryMayBeInUseOnTheLanesStream) {
  struct Cache {
    FakeCuda* cuda;
    CudaStream stream;
    std::vector<void*> given;
    int64_t taken = 0;

    // What the kernels of its user before, or after, do.
    void Scribble(void* data, int64_t size) const {
      cuda->Launch(stream, [data = cuda->Reach(data), size] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::memset(data, 0xA5, static_cast<size_t>(size));
      });
    }
  } cache{&cuda_, streams_[0], {}};
  castor_allocator allocator = CASTOR_INIT(castor_allocator);
  allocator.context = &cache;
  allocator.allocate = [](void* context, int64_t bytes,
                          void** data) -> int32_t {
    auto& from = *static_cast<Cache*>(context);
    EXPECT_EQ(from.cuda->Malloc(bytes, data), kCudaOk);
    from.Scribble(*data, bytes);
    ++from.taken;
    return CASTOR_OK;
  };
  allocator.release = [](void* context, void* data) {
    auto& to = *static_cast<Cache*>(context);
    to.Scribble(data, kBytes);
    to.given.push_back(data);
  };
  ASSERT_GIVES(CASTOR_OK, castor_device_set_allocator(device_, &allocator));
  {
    const CEngine engine(world_, 0, kParams,
                         R"({"chunk": {"bytes": "1KiB"},
                             "device_budget_bytes": "64KiB",
                             "host_budget_bytes": "1MiB"})",
                         device_);
    Use(engine, 0);
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    const auto expect_initial = [&] {
      for (int32_t p = 0; p < kParams; ++p) {
        Values values(static_cast<size_t>(CEngine::kElements));
        EXPECT_GIVES(CASTOR_OK,
                     castor_engine_read(engine.get(), p, CASTOR_PARAM,
                                        values.data(), CEngine::kElements));
        EXPECT_EQ(values, Initial()) << p;
      }
    };
    Settle();
    expect_initial();
    ASSERT_GIVES(CASTOR_OK,
                 castor_engine_park(engine.get(), CASTOR_HOST, nullptr));
    EXPECT_EQ(std::ssize(cache.given), cache.taken);
    ASSERT_GIVES(CASTOR_OK, castor_engine_resume(engine.get()));
    Settle();
    expect_initial();
  }
  EXPECT_EQ(std::ssize(cache.given), cache.taken);
  EXPECT_GT(cache.taken, 1);
  Settle();
  for (void* data : cache.given) EXPECT_EQ(cuda_.Free(data), kCudaOk);
}

}  // namespace
}  // namespace castor
