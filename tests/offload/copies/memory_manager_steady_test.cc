// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Steps that repeat allocate nothing.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/memory_manager.h"
#include "placement/plan.h"
#include "tests/offload/copies/fake_chunk_source.h"
#include "tests/offload/copies/memory_manager_machine.h"
#include "tests/support/test_rounds.h"

// Every allocation of this binary is counted, to show where there is none.
namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

// Not inlined: GCC would take malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* data = std::malloc(size)) return data;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept {
  std::free(data);
}

namespace castor {
namespace {

constexpr int kChunks = 24;

void Repeat(PlanProblem problem, PlanPolicy policy) {
  problem.param_class.assign(kChunks, 0);
  problem.grad_class.assign(kChunks, 0);
  problem.fetch_cost.assign(kChunks, 1);
  problem.survives_step.assign(kChunks, false);
  problem.survives_step[3] = true;
  problem.slots = {8};
  problem.prefetch.depth = 3;
  Machine machine(problem, nullptr, policy);
  machine.source.calls.reserve(1 << 20);
  machine.source.slots.reserve(1 << 20);
  machine.source.shards.reserve(1 << 20);
  machine.source.from_shards.reserve(1 << 20);
  MemoryManager& manager = *machine.manager;
  ThreadLane lane("compute");
  const auto step = [&](int32_t number) {
    const auto use = [&](int c) {
      Result<ChunkPin> pin = manager.Acquire(ChunkId(c), lane);
      CASTOR_CHECK(pin.ok());
      CASTOR_CHECK_EQ(StampAt(pin->data()).chunk, c);
    };
    for (int c = 0; c < kChunks; ++c) use(c);
    for (int c = kChunks - 1; c >= 0; --c) {
      Slot grad = *manager.OpenGrad(ChunkId(c));
      use(c);
      manager.CloseGrad(ChunkId(c), grad, Event());
    }
    CASTOR_CHECK(manager.EndStep().ok());
    manager.BeginStep(number + 1);
  };
  for (int32_t i = 1; i <= 4; ++i) step(i);
  const int64_t gathers_before = manager.stats().gathers;
  const int64_t takes_before = machine.device->stats().takes;
  step(5);
  const int64_t gathers = manager.stats().gathers - gathers_before;
  const int64_t takes = machine.device->stats().takes - takes_before;
  const int64_t allocated = allocations;
  const int steps = TestRounds(5000);
  for (int32_t i = 0; i < steps; ++i) step(6 + i);
  EXPECT_EQ(allocations - allocated, 0);
  EXPECT_EQ(manager.stats().gathers - gathers_before, gathers * (steps + 1));
  EXPECT_EQ(machine.device->stats().takes - takes_before, takes * (steps + 1));
  EXPECT_EQ(manager.stats().divergences, 0);
  EXPECT_LE(machine.device->stats().peak, kMachineSlot * 8);
  EXPECT_EQ(manager.stats().fetches < manager.stats().gathers,
            !problem.shard_cost.empty());
}

// PatrickStar allocates for two fifths of a step (defect B3).
TEST(MemoryManagerSteadyStateTest, PlannedStepsAllocateNothingAndRepeat) {
  Repeat(PlanProblem(), PlanPolicy::kAuto);
}

TEST(MemoryManagerSteadyStateTest, NorDoStepsThatKeepShards) {
  PlanProblem problem;
  problem.shard_cost.assign(kChunks, 0.75);
  problem.shards_per_slot = {2};
  Repeat(std::move(problem), PlanPolicy::kPlanned);
}

}  // namespace
}  // namespace castor
