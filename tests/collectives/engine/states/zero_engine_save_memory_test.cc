// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a save takes of the heap, beside the tiers' budgets: one chunk at most,
// however large the model is (checkpoints that run out of memory, defect B15).

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/zero_engine_fixture.h"

namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> most_bytes{0};

void CountFreed(void* data) {
  if (data == nullptr) return;
  live_bytes -= static_cast<int64_t>(malloc_usable_size(data));
  std::free(data);
}

}  // namespace

void* operator new(size_t size) {
  void* const data = std::malloc(size);
  if (data == nullptr) std::abort();
  const int64_t now = live_bytes +=
      static_cast<int64_t>(malloc_usable_size(data));
  int64_t most = most_bytes;
  while (now > most && !most_bytes.compare_exchange_weak(most, now)) {
  }
  return data;
}
void operator delete(void* data) noexcept { CountFreed(data); }
void operator delete(void* data, size_t) noexcept { CountFreed(data); }

namespace castor {
namespace {

constexpr int kParams = 12;
constexpr int64_t kElements = 65'536;
constexpr Bytes kChunk = KiB(256);  // a parameter each
// Names, headers, the manifest, and what is queued.
constexpr Bytes kRecords = KiB(160);

class SaveMemoryTest : public OneRankEngineTest {
 protected:
  // An engine of one step, whose states lie on all tiers or in host memory.
  void Train(bool with_drive) {
    ZeroOptions options = Tight(3, MiB(2), with_drive ? MiB(4) : MiB(32));
    if (!with_drive) options.nvme.clear();
    options.chunk_size = kChunk;
    Result<std::unique_ptr<ZeroEngine>> made =
        ZeroEngine::Create(options, world_[0].get());
    ASSERT_THAT(made, IsOk());
    engine_ = *std::move(made);
    for (int p = 0; p < kParams; ++p) {
      const Result<ParamId> id = engine_->Register(
          {"p" + std::to_string(p), {kElements}, DType::kF32}, {});
      ASSERT_THAT(id, IsOk());
      ids_.push_back(*id);
    }
    ASSERT_THAT(engine_->Seal({}), IsOk());
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    Backward({11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
    ASSERT_THAT(engine_->Step(0.1), IsOk());
  }

  // The most of the heap that was taken during a save, above what was before.
  Bytes TakenBySave(bool wait) {
    const int64_t before = live_bytes;
    most_bytes = before;
    const TempDir dir;
    Result<SaveResult> saved =
        engine_->Save({.directory = dir.File("saved"), .wait = wait});
    if (!wait) saved = engine_->FinishSave();
    EXPECT_THAT(saved, IsOk());
    // Parameters and two moments.
    if (saved.ok()) {
      EXPECT_GE(saved->bytes, 3 * kParams * kChunk);
    }
    return Bytes(most_bytes - before);
  }
};

TEST_F(SaveMemoryTest, OneChunkAtMostBesideTheBudgets) {
  for (const bool with_drive : {true, false}) {
    SCOPED_TRACE(with_drive ? "three tiers" : "two tiers");
    world_ = MakeInProcessWorld({.executor = &pool_});
    ids_.clear();
    Train(with_drive);
    for (const bool wait : {true, false}) {
      EXPECT_LE(TakenBySave(wait), kChunk + kRecords) << "wait " << wait;
    }
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.home_bytes[TierIndex(Tier::kNvme)] > Bytes(0), with_drive);
    for (const Tier tier : kAllTiers) {
      const TierUse& use = stats.tiers[TierIndex(tier)];
      EXPECT_LE(use.peak, use.budget) << TierName(tier);
    }
    ASSERT_THAT(engine_->Close(), IsOk());
    engine_.reset();
  }
}

}  // namespace
}  // namespace castor
