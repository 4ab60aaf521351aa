// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a pinned buffer costs: one allocated and freed, for each size, on one
// and on two threads; and one of many alive exchanged for another of another
// size, with how much of the arena the buffers alive then fill. Castor's own
// arena next to jemalloc's.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/memory/jemalloc_arena.h"
#include "offload/memory/linked_jemalloc.h"
#include "offload/memory/pinned_arena.h"

namespace castor {
namespace {

Result<std::unique_ptr<PinnedArena>> MakeArena(bool jemalloc, Bytes budget) {
  static Log silent([](LogLevel, std::string_view) {});
  const PinnedArenaOptions options = {.budget = budget, .log = &silent};
  return jemalloc ? MakeJemallocArena(LinkedJemalloc(), options)
                  : MakePinnedArena(options);
}

// Arguments: jemalloc or not, the size.
void BM_AllocateAndFree(benchmark::State& state) {
  static std::unique_ptr<PinnedArena> arena;
  if (state.thread_index() == 0) {
    auto made = MakeArena(state.range(0) != 0, MiB(256));
    if (!made.ok()) {
      state.SkipWithError(made.status().ToString().c_str());
      return;
    }
    arena = std::move(made).value();
  }
  const Bytes size(state.range(1));
  const Bytes alignment = size < kPinnedPage ? Bytes(64) : kPinnedPage;
  for (auto _ : state) {
    auto buffer = arena->Allocate(size, alignment);
    if (!buffer.ok()) {
      state.SkipWithError("the arena is full");
      break;
    }
    benchmark::DoNotOptimize(buffer->data());
  }
  if (state.thread_index() == 0) arena.reset();
}
BENCHMARK(BM_AllocateAndFree)
    ->ArgNames({"jemalloc", "size"})
    ->ArgsProduct({{0, 1},
                   {64, 1 << 10, 4 << 10, 16 << 10, 100'000, 1 << 20,
                    (1 << 20) + 1, 16 << 20}})
    ->Threads(1)
    ->Threads(2)
    ->UseRealTime();

// Arguments: jemalloc or not, the largest size. Sizes are spread evenly over
// powers of two; buffers are freed at random where there is no room.
void BM_ExchangeAmongMany(benchmark::State& state) {
  auto arena = MakeArena(state.range(0) != 0, MiB(64));
  if (!arena.ok()) {
    state.SkipWithError(arena.status().ToString().c_str());
    return;
  }
  std::mt19937_64 random(7);
  const auto largest = static_cast<uint64_t>(state.range(1));
  std::vector<PinnedBuffer> held;
  const auto next_size = [&] {
    const uint64_t below = largest >> random() % 6;
    return Bytes(static_cast<int64_t>(1 + random() % below));
  };
  double filled = 0;
  int64_t samples = 0;
  for (auto _ : state) {
    auto buffer = (*arena)->Allocate(next_size(), Bytes(64));
    if (buffer.ok()) {
      held.push_back(std::move(buffer).value());
      continue;
    }
    // Full: what is alive then is what the arena could hold of these sizes.
    state.PauseTiming();
    filled += static_cast<double>((*arena)->stats().requested.count()) /
              static_cast<double>((*arena)->budget().count());
    ++samples;
    state.ResumeTiming();
    for (int i = 0; i < 16 && !held.empty(); ++i) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
    }
  }
  state.counters["filled"] =
      samples > 0 ? filled / static_cast<double>(samples) : 0;
}
BENCHMARK(BM_ExchangeAmongMany)
    ->ArgNames({"jemalloc", "largest"})
    ->ArgsProduct({{0, 1}, {16 << 10, 4 << 20}});

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
