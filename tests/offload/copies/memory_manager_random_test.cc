// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Random steps of a trainer against a naive count of what it holds.

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/memory_manager.h"
#include "placement/plan.h"
#include "placement/planner/plan_validator.h"
#include "placement/run_event.h"
#include "tests/offload/copies/fake_chunk_source.h"
#include "tests/offload/copies/memory_manager_machine.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

PlanProblem RandomProblem(std::mt19937_64& random) {
  PlanProblem problem;
  const size_t chunks = 1 + random() % 10;
  const size_t classes = 1 + random() % 2;
  for (size_t c = 0; c < chunks; ++c) {
    const int32_t slot_class = static_cast<int32_t>(random() % classes);
    problem.param_class.push_back(random() % 6 == 0 ? kNoSlotClass
                                                    : slot_class);
    problem.grad_class.push_back(slot_class);
    problem.fetch_cost.push_back(1 + static_cast<double>(random() % 3));
    problem.survives_step.push_back(random() % 4 == 0);
  }
  for (size_t k = 0; k < classes; ++k) {
    problem.slots.push_back(1 + static_cast<int64_t>(random() % 5));
  }
  problem.prefetch.depth = static_cast<int>(random() % 4);
  return problem;
}

// What a trainer does: one call each.
struct Call {
  enum Kind { kAcquire, kRelease, kOpenGrad, kCloseGrad, kBeginEval, kEndEval };
  Kind kind;
  int32_t chunk = -1;
};

// Random calls that end with nothing held.
std::vector<Call> RandomStep(std::mt19937_64& random, size_t chunks) {
  std::vector<Call> calls;
  std::vector<int> held(chunks, 0);
  std::vector<bool> grad(chunks, false);
  bool evaluating = false;
  const size_t length = random() % 40;
  for (size_t i = 0; i < length; ++i) {
    const auto c = static_cast<int32_t>(random() % chunks);
    const auto at = static_cast<size_t>(c);
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        calls.push_back({Call::kAcquire, c});
        ++held[at];
        break;
      case 3:
      case 4:
      case 5:
        if (held[at] == 0) break;
        calls.push_back({Call::kRelease, c});
        --held[at];
        break;
      case 6:
        if (evaluating) break;
        calls.push_back({grad[at] ? Call::kCloseGrad : Call::kOpenGrad, c});
        grad[at] = !grad[at];
        break;
      case 7:
        if (random() % 3 != 0) break;
        calls.push_back({evaluating ? Call::kEndEval : Call::kBeginEval});
        evaluating = !evaluating;
        break;
    }
  }
  if (evaluating) calls.push_back({Call::kEndEval});
  for (size_t c = 0; c < chunks; ++c) {
    const auto id = static_cast<int32_t>(c);
    for (; held[c] > 0; --held[c]) calls.push_back({Call::kRelease, id});
    if (grad[c]) calls.push_back({Call::kCloseGrad, id});
  }
  return calls;
}

// A trainer on its own lane, with what it holds counted naively: per class the
// chunks it pins and the gradients it has open, and nothing else.
class Trainer {
 public:
  Trainer(Machine* machine, ManualExecutor* executor, bool* bytes_were_wrong)
      : executor_(executor),
        machine_(machine),
        lane_("compute", executor),
        wrong_(bytes_were_wrong),
        pins_(machine->problem.param_class.size()),
        grads_(machine->problem.param_class.size()) {}
  ~Trainer() {
    pins_.clear();
    executor_->RunAll();
  }

  void Make(const Call& call) {
    MemoryManager& manager = *machine_->manager;
    const ChunkId chunk(call.chunk);
    switch (call.kind) {
      case Call::kAcquire:
        Acquire(chunk);
        break;
      case Call::kRelease:
        // One that was refused has nothing to release.
        if (!pins_[chunk.index()].empty()) pins_[chunk.index()].pop_back();
        break;
      case Call::kOpenGrad: {
        const int32_t k = machine_->problem.grad_class[chunk.index()];
        const bool room = Held(k) < Slots(k);
        Result<Slot> slot = manager.OpenGrad(chunk);
        ASSERT_EQ(slot.ok(), room);
        if (room) grads_[chunk.index()] = *slot;
        break;
      }
      case Call::kCloseGrad:
        if (!grads_[chunk.index()].valid()) break;
        manager.CloseGrad(chunk, grads_[chunk.index()], lane_.Record());
        grads_[chunk.index()] = Slot();
        break;
      case Call::kBeginEval:
        manager.BeginEvaluation();
        break;
      case Call::kEndEval:
        manager.EndEvaluation();
        break;
    }
    for (size_t k = 0; k < machine_->problem.slots.size(); ++k) {
      const auto slot_class = static_cast<int32_t>(k);
      const int64_t taken =
          Slots(slot_class) - machine_->device->free_slots(slot_class);
      ASSERT_LE(Held(slot_class), taken);
    }
  }

  int64_t refusals() const { return refusals_; }

 private:
  void Acquire(ChunkId chunk) {
    const int32_t k = machine_->problem.param_class[chunk.index()];
    const bool room = k == kNoSlotClass || !pins_[chunk.index()].empty() ||
                      Held(k) < Slots(k);
    Result<ChunkPin> pin = machine_->manager->Acquire(chunk, lane_);
    ASSERT_EQ(pin.ok(), room) << "chunk " << chunk << ": " << pin.status();
    if (!room) {
      ++refusals_;
      ASSERT_EQ(pin.status().code(), ErrorCode::kInfeasible);
      return;
    }
    // When the lane gets there, the bytes are those that the chunk had when it
    // was acquired; one at home on the device is not the manager's to keep.
    if (k != kNoSlotClass) {
      const ChunkStamp want{chunk.value(),
                            machine_->source.versions[chunk.index()]};
      lane_.Run([data = pin->data(), want, wrong = wrong_] {
        *wrong = *wrong || StampAt(data) != want;
        return OkStatus();
      });
    }
    pins_[chunk.index()].push_back(*std::move(pin));
  }

  int64_t Slots(int32_t k) const {
    return machine_->problem.slots[static_cast<size_t>(k)];
  }
  int64_t Held(int32_t k) const {
    int64_t held = 0;
    for (size_t c = 0; c < pins_.size(); ++c) {
      held += !pins_[c].empty() && machine_->problem.param_class[c] == k;
      held += grads_[c].valid() && machine_->problem.grad_class[c] == k;
    }
    return held;
  }

  ManualExecutor* executor_;
  Machine* machine_;
  WorkerLane lane_;
  bool* wrong_;
  std::vector<std::vector<ChunkPin>> pins_;
  std::vector<Slot> grads_;
  int64_t refusals_ = 0;
};

// Steps mostly repeat, sometimes change; work on lanes lags behind at random.
// No more is gathered at any access than there are slots (OSLO's hooks gather
// everything, defect B19).
TEST(MemoryManagerRandomTest, ServesEveryAccessThatFitsWithTheRightBytes) {
  std::mt19937_64 random(TestSeed(31));
  int64_t refusals = 0;
  int64_t prefetched = 0;
  int64_t divergences = 0;
  int64_t cancelled = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    ManualExecutor executor;
    Machine machine(RandomProblem(random), &executor);
    machine.source.cancellable = round % 2 == 0;
    const size_t chunks = machine.problem.param_class.size();
    bool wrong = false;
    {
      Trainer trainer(&machine, &executor, &wrong);
      std::vector<Call> calls = RandomStep(random, chunks);
      for (int step = 2; step < 14; ++step) {
        if (random() % 4 == 0) calls = RandomStep(random, chunks);
        for (const Call& call : calls) {
          trainer.Make(call);
          if (testing::Test::HasFatalFailure()) return;
          if (random() % 12 > 0) continue;
          for (uint64_t turns = random() % 5; turns > 0; --turns) {
            const size_t pending = executor.pending();
            if (pending > 0) executor.RunOne(random() % pending);
          }
        }
        if (random() % 8 == 0) {
          machine.manager->AbandonStep();
          continue;
        }
        // As before an engine is parked.
        if (random() % 8 == 0) machine.manager->DropAll(RunCause::kNone);
        ASSERT_THAT(machine.manager->EndStep(), IsOk());
        ASSERT_THAT(ValidatePlan(machine.manager->planned_trace(),
                                 machine.problem, *machine.manager->plan()),
                    IsOk());
        for (size_t c = 0; c < chunks; ++c) {
          // Work of the step still reads the old version on its lane.
          if (!machine.problem.survives_step[c]) ++machine.source.versions[c];
        }
        machine.manager->BeginStep(step);
      }
      executor.RunAll();
      refusals += trainer.refusals();
    }
    EXPECT_FALSE(wrong);
    prefetched += machine.manager->stats().prefetched_gathers;
    divergences += machine.manager->stats().divergences;
    const int64_t taken_back = machine.manager->stats().cancelled_gathers;
    EXPECT_EQ(taken_back,
              static_cast<int64_t>(machine.source.cancelled.size()));
    cancelled += taken_back;
    EXPECT_THAT(machine.manager->Close(), IsOk());
    machine.manager.reset();
    EXPECT_EQ(machine.device->stats().in_use, Bytes(0));
  }
  // The cases are not all of one kind.
  EXPECT_GT(refusals, 100);
  EXPECT_GT(prefetched, 1000);
  EXPECT_GT(divergences, 300);
  EXPECT_GT(cancelled, 100);
}

// Ranks that make the same accesses make the same moves, whatever the time
// their copies take: else their collectives would not meet.
TEST(MemoryManagerRandomTest, DecisionsDoNotDependOnTime) {
  std::mt19937_64 random(TestSeed(32));
  for (int round = 0; round < 200; ++round) {
    const PlanProblem problem = RandomProblem(random);
    const size_t chunks = problem.param_class.size();
    ManualExecutor late;
    const PlanPolicy policy =
        round % 4 < 2 ? PlanPolicy::kAuto : PlanPolicy::kPlanned;
    Machine one(problem, nullptr, policy);
    Machine two(problem, &late, policy);
    // What is taken back is a matter of time, but never what is kept.
    one.source.cancellable = two.source.cancellable = round % 2 == 0;
    bool wrong = false;
    ManualExecutor unused;
    {
      Trainer first(&one, &unused, &wrong);
      Trainer second(&two, &late, &wrong);
      std::vector<Call> calls = RandomStep(random, chunks);
      for (int step = 2; step < 8; ++step) {
        if (random() % 3 == 0) calls = RandomStep(random, chunks);
        for (const Call& call : calls) {
          first.Make(call);
          second.Make(call);
          unused.RunAll();
          if (late.pending() > 0 && random() % 3 == 0) {
            late.RunOne(random() % late.pending());
          }
        }
        ASSERT_THAT(one.manager->EndStep(), IsOk());
        ASSERT_THAT(two.manager->EndStep(), IsOk());
        one.manager->BeginStep(step);
        two.manager->BeginStep(step);
      }
      late.RunAll();
    }
    ASSERT_EQ(one.source.calls, two.source.calls);
    ASSERT_EQ(one.manager->stats().releases, two.manager->stats().releases);
  }
}

}  // namespace
}  // namespace castor
