// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_COPIES_MEMORY_MANAGER_MACHINE_H_
#define CASTOR_TESTS_OFFLOAD_COPIES_MEMORY_MANAGER_MACHINE_H_

// All that a MemoryManager needs, over a fake source and small slots, for tests
// that draw its problem at random. Owner thread only.

#include <memory>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "offload/lane.h"
#include "offload/memory/tier_pool.h"
#include "offload/memory_manager.h"
#include "placement/plan.h"
#include "tests/offload/copies/fake_chunk_source.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/fakes/manual_executor.h"

namespace castor {

inline constexpr Bytes kMachineSlot(512);

struct Machine {
  // `executor` runs the copies; null: they are there at once.
  Machine(PlanProblem problem, ManualExecutor* executor,
          PlanPolicy policy = PlanPolicy::kAuto)
      : executor(executor),
        source(problem.param_class.size()),
        problem(std::move(problem)) {
    std::vector<SlotClass> classes;
    Bytes size;
    for (int64_t slots : this->problem.slots) {
      classes.push_back({kMachineSlot, slots});
      size += kMachineSlot * slots;
    }
    memory = std::make_unique<AlignedBytes>(size);
    device = std::make_unique<TierPool>(
        *TierPool::Create(Tier::kDevice, size, classes, memory->data()));
    if (executor != nullptr) {
      copies = std::make_unique<WorkerLane>("copies", executor);
      source.lane = copies.get();
    }
    MemoryManagerOptions options;
    options.device = device.get();
    options.problem = this->problem;
    options.policy = policy;
    options.source = &source;
    options.clock = &clock;
    manager = std::make_unique<MemoryManager>(std::move(options));
    manager->BeginStep(1);
  }
  ~Machine() {
    if (executor != nullptr) executor->RunAll();
  }

  ManualExecutor* executor;
  FakeClock clock;
  std::unique_ptr<AlignedBytes> memory;
  std::unique_ptr<TierPool> device;
  std::unique_ptr<WorkerLane> copies;
  FakeChunkSource source;
  PlanProblem problem;
  std::unique_ptr<MemoryManager> manager;
};

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_COPIES_MEMORY_MANAGER_MACHINE_H_
