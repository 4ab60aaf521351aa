// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_COPIES_MEMORY_MANAGER_FIXTURE_H_
#define CASTOR_TESTS_OFFLOAD_COPIES_MEMORY_MANAGER_FIXTURE_H_

// A MemoryManager over a fake source, small slots and a clock turned by hand,
// driven use by use and step by step. Every use checks that it sees its chunk's
// newest bytes. Owner thread only.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/memory/tier_pool.h"
#include "offload/memory_manager.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "tests/offload/copies/fake_chunk_source.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace castor {

inline constexpr Bytes kSlot(512);

// Notes gathers and drops in one order. A gather is noted by the source.
class MoveList final : public RunRecorder {
 public:
  explicit MoveList(const FakeChunkSource* source) : source_(source) {}
  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent& event) override {
    events.push_back(event);
    if (event.kind != RunEventKind::kRelease) return;
    NoteGathers();
    moves.push_back({MoveKind::kRelease, event.cause, ChunkId(event.chunk)});
  }
  void NoteGathers() {
    for (; seen_ < source_->calls.size(); ++seen_) {
      const FakeChunkSource::Call& call = source_->calls[seen_];
      moves.push_back({MoveKind::kGather, call.cause, call.chunk});
    }
  }
  void Clear() {
    NoteGathers();
    moves.clear();
    events.clear();
  }
  int64_t Count(RunEventKind kind) const {
    return std::count_if(events.begin(), events.end(),
                         [&](const RunEvent& e) { return e.kind == kind; });
  }

  std::vector<Move> moves;
  std::vector<RunEvent> events;

 private:
  const FakeChunkSource* source_;
  size_t seen_ = 0;
};

class MemoryManagerFixture : public testing::Test {
 protected:
  // One class of `slots` slots for `chunks` chunks.
  void Open(int chunks, int64_t slots, int depth = 0) {
    PlanProblem problem;
    const auto n = static_cast<size_t>(chunks);
    problem.param_class.assign(n, 0);
    problem.grad_class.assign(n, 0);
    problem.fetch_cost.assign(n, 1);
    problem.survives_step.assign(n, false);
    problem.slots = {slots};
    problem.prefetch.depth = depth;
    Open(std::move(problem));
  }
  void Open(PlanProblem problem) {
    std::vector<SlotClass> classes;
    Bytes size;
    for (int64_t slots : problem.slots) {
      classes.push_back({kSlot, slots});
      size += kSlot * slots;
    }
    manager_.reset();  // before what it uses
    memory_ = std::make_unique<AlignedBytes>(size);
    device_ = std::make_unique<TierPool>(
        *TierPool::Create(Tier::kDevice, size, classes, memory_->data()));
    source_ = std::make_unique<FakeChunkSource>(problem.param_class.size());
    moves_ = std::make_unique<MoveList>(source_.get());
    MemoryManagerOptions options;
    options.device = device_.get();
    options.problem = std::move(problem);
    options.policy = policy_;
    options.source = source_.get();
    options.clock = &clock_;
    if (records_) options.recorder = moves_.get();
    options.rank = 2;
    problem_ = options.problem;
    manager_ = std::make_unique<MemoryManager>(std::move(options));
    manager_->BeginStep(1);
  }

  ChunkPin Take(int chunk) {
    Result<ChunkPin> pin = manager_->Acquire(ChunkId(chunk), lane_);
    EXPECT_THAT(pin, IsOk()) << "chunk " << chunk;
    EXPECT_EQ(StampAt(pin->data()),
              (ChunkStamp{chunk, source_->versions[ChunkId(chunk).index()]}));
    return *std::move(pin);
  }
  void Use(int chunk) { Take(chunk); }
  void UseAll(const std::vector<int>& chunks) {
    for (int chunk : chunks) Use(chunk);
  }
  // What the optimizer does: trainable chunks have new values.
  void Update() {
    for (size_t c = 0; c < source_->versions.size(); ++c) {
      if (!problem_.survives_step[c]) ++source_->versions[c];
    }
  }
  void NextStep() {
    ASSERT_THAT(manager_->EndStep(), IsOk());
    Update();
    manager_->BeginStep(++step_);
  }
  void Step(const std::vector<int>& chunks) {
    UseAll(chunks);
    NextStep();
  }
  // Chunks gathered since the last call.
  std::vector<int> Gathered() {
    std::vector<int> chunks;
    for (; gathered_ < source_->calls.size(); ++gathered_) {
      chunks.push_back(source_->calls[gathered_].chunk.value());
    }
    return chunks;
  }
  Bytes in_use() const { return device_->stats().in_use; }
  StallSum StallsOf(RunCause cause) const {
    return manager_->stalls()[static_cast<size_t>(cause)];
  }

  PlanPolicy policy_ = PlanPolicy::kAuto;
  bool records_ = true;
  FakeClock clock_;
  std::unique_ptr<AlignedBytes> memory_;
  std::unique_ptr<TierPool> device_;
  std::unique_ptr<FakeChunkSource> source_;
  std::unique_ptr<MoveList> moves_;
  PlanProblem problem_;
  std::unique_ptr<MemoryManager> manager_;
  ThreadLane lane_{"compute"};
  int32_t step_ = 1;
  size_t gathered_ = 0;
};

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_COPIES_MEMORY_MANAGER_FIXTURE_H_
