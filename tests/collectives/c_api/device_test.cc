// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Devices of the C ABI: shared by engines, with lanes of their own, and with
// memory from the program's allocator.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>

#include "collectives/c_api/castor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/c_api/c_engine.h"

namespace castor {
namespace {

using testing::HasSubstr;

// What the program's allocator has given out.
struct Arena {
  std::map<void*, int64_t> given;
  int allocations = 0;
  bool full = false;
};

int32_t Allocate(void* context, int64_t bytes, void** data) {
  Arena& arena = *static_cast<Arena*>(context);
  if (arena.full) {
    castor_set_error("the arena is full");
    return CASTOR_TIER_FULL;
  }
  *data =
      std::aligned_alloc(256, static_cast<size_t>((bytes + 511) / 256 * 256));
  // What is not zero is seen if Castor counts on zeros.
  std::fill_n(static_cast<char*>(*data), bytes, '\x7f');
  arena.given[*data] = bytes;
  ++arena.allocations;
  return CASTOR_OK;
}

void Release(void* context, void* data) {
  Arena& arena = *static_cast<Arena*>(context);
  ASSERT_EQ(arena.given.erase(data), 1u);
  std::free(data);
}

castor_allocator AllocatorOf(Arena* arena) {
  castor_allocator allocator = CASTOR_INIT(castor_allocator);
  allocator.context = arena;
  allocator.allocate = Allocate;
  allocator.release = Release;
  return allocator;
}

void Train(const CEngine& engine, int32_t params) {
  ASSERT_GIVES(CASTOR_OK, castor_engine_begin_micro_batch(engine.get(), 1));
  for (int32_t p = params; p-- > 0;) {
    void* grad = nullptr;
    ASSERT_GIVES(CASTOR_OK, castor_engine_grad(engine.get(), p, &grad));
    static_cast<float*>(grad)[3] += 1;
    ASSERT_GIVES(CASTOR_OK, castor_engine_grad_ready(engine.get(), p));
  }
  ASSERT_GIVES(CASTOR_OK, castor_engine_step(engine.get(), 0.1, nullptr));
}

uint64_t DigestOf(const CEngine& engine) {
  uint64_t digest = 0;
  EXPECT_GIVES(CASTOR_OK, castor_engine_weight_digest(engine.get(), &digest));
  return digest;
}

TEST(DeviceTest, EnginesShareADeviceAndItsMemory) {
  const CWorld first(1);
  castor_device* device = nullptr;
  ASSERT_GIVES(CASTOR_OK,
               castor_device_open_simulated(first.get(), 1 << 20, &device));
  castor_device_info info = CASTOR_INIT(castor_device_info);
  ASSERT_GIVES(CASTOR_OK, castor_device_get_info(device, &info));
  EXPECT_EQ(info.kind, CASTOR_DEVICE_SIMULATED);
  EXPECT_EQ(info.total_bytes, 1 << 20);
  EXPECT_EQ(info.free_bytes, 1 << 20);
  EXPECT_EQ(info.host_addressable, 1);
  EXPECT_STREQ(info.name, "simulated device");
  {
    const CEngine engine(first, 0, 4, kSmallConfig, device);
    ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
    ASSERT_GIVES(CASTOR_OK, castor_device_get_info(device, &info));
    EXPECT_LT(info.free_bytes, 1 << 20);
    EXPECT_GIVES(CASTOR_FAILED_PRECONDITION, castor_device_destroy(device));
    Train(engine, 4);
  }
  castor_lane* lane = nullptr;
  EXPECT_GIVES(CASTOR_UNAVAILABLE,
               castor_lane_adopt_stream(device, nullptr, &lane));
  EXPECT_EQ(lane, nullptr);
  ASSERT_GIVES(CASTOR_OK, castor_lane_create(first.get(), device, &lane));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION, castor_device_destroy(device));
  ASSERT_GIVES(CASTOR_OK, castor_lane_destroy(lane));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION, castor_world_destroy(first.get()));
  EXPECT_THAT(castor_last_error(), HasSubstr("1 devices"));
  EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device));
}

TEST(DeviceTest, ADeviceIsOfItsWorld) {
  const CWorld world(1);
  const CWorld other(1);
  castor_device* device = nullptr;
  ASSERT_GIVES(CASTOR_OK,
               castor_device_open_simulated(world.get(), 1 << 20, &device));
  castor_engine* engine = nullptr;
  castor_lane* lane = nullptr;
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_engine_create(other.get(), 0, device, nullptr, &engine));
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_lane_create(other.get(), device, &lane));
  EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device));
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_device_open_simulated(world.get(), 0, &device));
  EXPECT_EQ(device, nullptr);
}

// Without a GPU it says what is missing, in a build with CUDA and without.
TEST(DeviceTest, SaysWhyThereIsNoGpu) {
  const CWorld world(1);
  castor_device* device = nullptr;
  const int32_t opened = castor_device_open_cuda(world.get(), 1000, &device);
  EXPECT_EQ(opened, CASTOR_UNAVAILABLE);
  EXPECT_EQ(device, nullptr);
  EXPECT_THAT(castor_last_error(), HasSubstr("CUDA"));
}

TEST(DeviceTest, MemoryComesFromTheProgramsAllocatorWithTheSameBits) {
  uint64_t digests[2] = {};
  Arena arena;
  const castor_allocator allocator = AllocatorOf(&arena);
  for (const int own : {0, 1}) {
    const CWorld world(1);
    castor_device* device = nullptr;
    ASSERT_GIVES(CASTOR_OK,
                 castor_device_open_simulated(world.get(), 1 << 22, &device));
    if (own == 1) {
      ASSERT_GIVES(CASTOR_OK, castor_device_set_allocator(device, &allocator));
    }
    {
      const CEngine engine(world, 0, 6, kSmallConfig, device);
      ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
      EXPECT_EQ(arena.given.size(), static_cast<size_t>(own));
      EXPECT_GIVES(CASTOR_FAILED_PRECONDITION,
                   castor_device_set_allocator(device, nullptr));
      Train(engine, 6);
      if (own == 1) {
        const auto [data, bytes] = *arena.given.begin();
        castor_engine_stats stats = CASTOR_INIT(castor_engine_stats);
        ASSERT_GIVES(CASTOR_OK, castor_engine_get_stats(engine.get(), &stats));
        EXPECT_GE(bytes, stats.device_peak_bytes);
        // What is handed out lies there.
        const int32_t param = 2;
        const void* values = nullptr;
        castor_param_lease* lease = nullptr;
        ASSERT_GIVES(CASTOR_OK, castor_engine_acquire(engine.get(), &param, 1,
                                                      &values, &lease));
        EXPECT_GE(values, data);
        EXPECT_LT(values, static_cast<const char*>(data) + bytes);
        ASSERT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
        ASSERT_GIVES(CASTOR_OK,
                     castor_engine_park(engine.get(), CASTOR_HOST, nullptr));
        EXPECT_TRUE(arena.given.empty());
        ASSERT_GIVES(CASTOR_OK, castor_engine_resume(engine.get()));
        EXPECT_EQ(arena.given.size(), 1u);
        castor_reseal_options reseal = CASTOR_INIT(castor_reseal_options);
        reseal.device_budget_bytes = 2 << 20;
        ASSERT_GIVES(CASTOR_OK, castor_engine_reseal(engine.get(), &reseal));
        EXPECT_EQ(arena.given.size(), 1u);
      }
      Train(engine, 6);
      digests[own] = DigestOf(engine);
    }
    EXPECT_TRUE(arena.given.empty());
    EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device));
  }
  EXPECT_EQ(arena.allocations, 3);
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(DeviceTest, AnAllocatorThatFailsIsTheSealsFailure) {
  Arena arena;
  const castor_allocator allocator = AllocatorOf(&arena);
  const CWorld world(1);
  castor_device* device = nullptr;
  ASSERT_GIVES(CASTOR_OK,
               castor_device_open_simulated(world.get(), 1 << 22, &device));
  castor_allocator half = allocator;
  half.release = nullptr;
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT,
               castor_device_set_allocator(device, &half));
  ASSERT_GIVES(CASTOR_OK, castor_device_set_allocator(device, &allocator));
  {
    arena.full = true;
    const CEngine engine(world, 0, 2, kSmallConfig, device);
    EXPECT_GIVES(CASTOR_TIER_FULL, castor_engine_seal(engine.get(), nullptr));
    EXPECT_THAT(castor_last_error(), HasSubstr("the arena is full"));
  }
  EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device));
}

}  // namespace
}  // namespace castor
