// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Calls that no correct program makes: each is refused with a sentence, and
// what is alive stays as it was.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "collectives/c_api/castor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/collectives/c_api/c_engine.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::StrEq;

// A number as the handle of something.
template <typename Handle>
Handle* HandleOf(uint64_t number) {
  return reinterpret_cast<Handle*>(static_cast<uintptr_t>(number));
}
template <typename Handle>
uint64_t NumberOf(const Handle* handle) {
  return reinterpret_cast<uintptr_t>(handle);
}

#define EXPECT_REFUSED(call, words)              \
  do {                                           \
    EXPECT_GIVES(CASTOR_INVALID_ARGUMENT, call); \
    EXPECT_THAT(castor_last_error(), words);     \
  } while (0)

castor_param_lease* AcquireFirst(const CEngine& engine) {
  const int32_t param = 0;
  const void* data = nullptr;
  castor_param_lease* lease = nullptr;
  EXPECT_GIVES(CASTOR_OK,
               castor_engine_acquire(engine.get(), &param, 1, &data, &lease));
  return lease;
}

TEST(MisuseTest, ALeaseEndsOnce) {
  const CWorld world(1);
  const CEngine engine(world, 0, 2);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  castor_param_lease* const lease = AcquireFirst(engine);
  EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(lease));
  EXPECT_REFUSED(castor_param_lease_release(lease),
                 StrEq("castor_param_lease_release: this castor_param_lease "
                       "was released"));
  // Neither does an older number end a later lease.
  castor_param_lease* const later = AcquireFirst(engine);
  EXPECT_NE(later, lease);
  EXPECT_GIVES(CASTOR_INVALID_ARGUMENT, castor_param_lease_release(lease));
  EXPECT_GIVES(CASTOR_OK, castor_param_lease_release(later));
}

TEST(MisuseTest, ALeaseOfMemoryEndsOnce) {
  const CWorld world(1);
  const CEngine engine(world, 0, 2);
  castor_seal_options options = {};
  options.struct_size = sizeof(options);
  options.largest_lease_bytes = 4096;
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), &options));
  void* data = nullptr;
  castor_memory_lease* lease = nullptr;
  ASSERT_GIVES(CASTOR_OK,
               castor_engine_borrow(engine.get(), 4096, &data, &lease));
  EXPECT_GIVES(CASTOR_OK, castor_memory_lease_release(lease));
  EXPECT_REFUSED(castor_memory_lease_release(lease),
                 HasSubstr("this castor_memory_lease was released"));
}

TEST(MisuseTest, OneOfManyThreadsEndsALease) {
  const CWorld world(1);
  const CEngine engine(world, 0, 2);
  ASSERT_GIVES(CASTOR_OK, castor_engine_seal(engine.get(), nullptr));
  for (int round = 0; round < 20; ++round) {
    castor_param_lease* const lease = AcquireFirst(engine);
    std::atomic<int> ended = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        if (castor_param_lease_release(lease) == CASTOR_OK) ++ended;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ended, 1);
  }
}

TEST(MisuseTest, WhatWasDestroyedIsSaidSo) {
  castor_world* world = nullptr;
  castor_device* device = nullptr;
  castor_lane* lane = nullptr;
  castor_engine* engine = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_world_create(1, nullptr, &world));
  ASSERT_GIVES(CASTOR_OK,
               castor_device_open_simulated(world, 1 << 20, &device));
  ASSERT_GIVES(CASTOR_OK, castor_lane_create(world, device, &lane));
  ASSERT_GIVES(CASTOR_OK,
               castor_engine_create(world, 0, device, kSmallConfig, &engine));
  EXPECT_GIVES(CASTOR_OK, castor_engine_destroy(engine));
  EXPECT_REFUSED(castor_engine_step(engine, 0.5, nullptr),
                 StrEq("castor_engine_step: this castor_engine was destroyed"));
  EXPECT_REFUSED(castor_engine_destroy(engine), HasSubstr("was destroyed"));
  EXPECT_GIVES(CASTOR_OK, castor_lane_destroy(lane));
  EXPECT_REFUSED(castor_lane_drain(lane),
                 StrEq("castor_lane_drain: this castor_lane was destroyed"));
  EXPECT_REFUSED(castor_lane_destroy(lane), HasSubstr("was destroyed"));
  EXPECT_GIVES(CASTOR_OK, castor_device_destroy(device));
  EXPECT_REFUSED(castor_lane_create(world, device, &lane),
                 HasSubstr("this castor_device was destroyed"));
  EXPECT_EQ(lane, nullptr);
  EXPECT_REFUSED(castor_device_destroy(device), HasSubstr("was destroyed"));
  EXPECT_GIVES(CASTOR_OK, castor_world_destroy(world));
  EXPECT_REFUSED(castor_world_abort(world, "late"),
                 StrEq("castor_world_abort: this castor_world was destroyed"));
  EXPECT_REFUSED(castor_world_record(world, "nowhere", nullptr),
                 HasSubstr("was destroyed"));
  EXPECT_REFUSED(castor_engine_create(world, 0, nullptr, "{}", &engine),
                 HasSubstr("was destroyed"));
  EXPECT_REFUSED(castor_world_destroy(world), HasSubstr("was destroyed"));
}

TEST(MisuseTest, AnArenaIsDestroyedOnce) {
  castor_pinned_arena* arena = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_pinned_arena_create(1 << 16, &arena));
  EXPECT_GIVES(CASTOR_OK, castor_pinned_arena_destroy(arena));
  void* data = nullptr;
  EXPECT_REFUSED(castor_pinned_arena_allocate(arena, 64, 0, &data),
                 HasSubstr("this castor_pinned_arena was destroyed"));
  EXPECT_REFUSED(castor_pinned_arena_free(arena, data),
                 HasSubstr("was destroyed"));
  EXPECT_REFUSED(castor_pinned_arena_destroy(arena),
                 HasSubstr("was destroyed"));
}

TEST(MisuseTest, OtherNumbersAreNoHandles) {
  const CWorld world(1);
  const CEngine engine(world, 0, 1);
  int32_t params = 0;
  EXPECT_REFUSED(
      castor_engine_param_count(reinterpret_cast<castor_engine*>(world.get()),
                                &params),
      StrEq("castor_engine_param_count: a castor_world was given where a "
            "castor_engine belongs"));
  const uint64_t number = NumberOf(engine.get());
  const uint64_t kind = number >> 56 << 56;
  for (const uint64_t garbage :
       {uint64_t{1}, uint64_t{0x7fff12345678}, UINT64_MAX, number + 1,
        number + (uint64_t{1} << 32), kind, kind | (uint64_t{0xFFFFFF} << 32),
        number ^ (uint64_t{0x80} << 56), NumberOf(&params)}) {
    EXPECT_REFUSED(
        castor_engine_param_count(HandleOf<castor_engine>(garbage), &params),
        HasSubstr("castor_engine_param_count: "));
  }
  // The right number, with the kind of another.
  const uint64_t of_world = NumberOf(world.get()) >> 56 << 56;
  EXPECT_REFUSED(castor_world_abort(
                     HandleOf<castor_world>((number - kind) | of_world), "no"),
                 HasSubstr("no castor_world that Castor gave"));
  EXPECT_REFUSED(castor_engine_param_count(nullptr, &params),
                 HasSubstr("null"));
  EXPECT_GIVES(CASTOR_OK, castor_engine_param_count(engine.get(), &params));
  EXPECT_EQ(params, 1);
}

// Others call the engine while it goes, and after.
TEST(MisuseTest, DestroyingAnEngineThatOthersCallEndsTheirCalls) {
  const CWorld world(1);
  castor_engine* engine = nullptr;
  ASSERT_GIVES(CASTOR_OK, castor_engine_create(world.get(), 0, nullptr,
                                               kSmallConfig, &engine));
  std::atomic<int> calling = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      int32_t params = 0;
      bool began = false;
      for (;;) {
        const int32_t code = castor_engine_param_count(engine, &params);
        if (!began) ++calling;
        began = true;
        if (code == CASTOR_OK) continue;
        EXPECT_EQ(code, CASTOR_INVALID_ARGUMENT);
        EXPECT_THAT(castor_last_error(), HasSubstr("was destroyed"));
        return;
      }
    });
  }
  while (calling < 3) std::this_thread::yield();
  EXPECT_GIVES(CASTOR_OK, castor_engine_destroy(engine));
  for (std::thread& thread : threads) thread.join();
}

struct Held {
  castor_lane* lane = nullptr;
  std::atomic<bool> entered = false;
  std::atomic<bool> go_on = false;
  int32_t own_drain = CASTOR_OK;
  int32_t own_destroy = CASTOR_OK;
};

TEST(MisuseTest, ALaneThatIsInUseStays) {
  const CWorld world(1);
  Held held;
  ASSERT_GIVES(CASTOR_OK, castor_lane_create(world.get(), nullptr, &held.lane));
  ASSERT_GIVES(CASTOR_OK, castor_lane_run(
                              held.lane,
                              [](void* context) -> int32_t {
                                auto* own = static_cast<Held*>(context);
                                own->own_drain = castor_lane_drain(own->lane);
                                own->own_destroy =
                                    castor_lane_destroy(own->lane);
                                own->entered = true;
                                while (!own->go_on) std::this_thread::yield();
                                return CASTOR_OK;
                              },
                              &held));
  while (!held.entered) std::this_thread::yield();
  std::atomic<bool> drains = false;
  std::thread waits([&] {
    drains = true;
    EXPECT_GIVES(CASTOR_OK, castor_lane_drain(held.lane));
  });
  while (!drains) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GIVES(CASTOR_FAILED_PRECONDITION, castor_lane_destroy(held.lane));
  EXPECT_THAT(castor_last_error(), HasSubstr("another call uses"));
  held.go_on = true;
  waits.join();
  EXPECT_GIVES(CASTOR_OK, castor_lane_destroy(held.lane));
  EXPECT_EQ(held.own_drain, CASTOR_FAILED_PRECONDITION);
  EXPECT_EQ(held.own_destroy, CASTOR_FAILED_PRECONDITION);
}

}  // namespace
}  // namespace castor
