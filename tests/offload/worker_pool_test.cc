// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/worker_pool.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "offload/lanes/executor.h"
#include "tests/offload/host/pretended_machine.h"
#include "tests/offload/kernels/kernel_data.h"

namespace castor {
namespace {

constexpr int64_t kRange = WorkerPool::kRange;

// The ranges of one call, sorted.
std::vector<std::pair<int64_t, int64_t>> RangesOf(WorkerPool& pool,
                                                  int64_t count) {
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  pool.ParallelFor(count, nullptr, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(WorkerPoolTest, CoversEveryElementOnceInRangesThatThreadsDoNotChange) {
  WorkerPool one({.threads = 1});
  WorkerPool four({.threads = 4});
  EXPECT_EQ(four.threads(), 4);
  for (int64_t count : {int64_t{1}, int64_t{63}, kRange - 1, kRange, kRange + 1,
                        3 * kRange, 20 * kRange + 77}) {
    const auto ranges = RangesOf(four, count);
    int64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      EXPECT_EQ(begin, at);
      EXPECT_EQ(begin % 64, 0);
      EXPECT_LE(end - begin, kRange);
      at = end;
    }
    EXPECT_EQ(at, count);
    EXPECT_EQ(RangesOf(one, count), ranges);
  }
  EXPECT_TRUE(RangesOf(four, 0).empty());
}

TEST(WorkerPoolTest, AllThreadsTakePartTheCallerAmongThem) {
  constexpr int kThreads = 3;
  WorkerPool pool({.threads = kThreads});
  for (int round = 0; round < 20; ++round) {
    // No range ends before as many threads as there are have come.
    std::latch all(kThreads);
    std::mutex mutex;
    std::set<std::thread::id> seen;
    pool.ParallelFor(kThreads * kRange, nullptr, [&](int64_t, int64_t) {
      {
        std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
      }
      all.arrive_and_wait();
    });
    EXPECT_EQ(seen.size(), size_t{kThreads});
    EXPECT_TRUE(seen.contains(std::this_thread::get_id()));
  }
}

TEST(WorkerPoolTest, AloneTheCallerDoesEverything) {
  WorkerPool pool({.threads = 1});
  int64_t done = 0;
  pool.ParallelFor(5 * kRange, nullptr, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin, done) << "in order";
    done = end;
  });
  EXPECT_EQ(done, 5 * kRange);
}

// A lane's work must not wait for other tasks of its executor, which may have
// one thread only; it may call this.
TEST(WorkerPoolTest, TheOnlyThreadOfAnExecutorMayCall) {
  WorkerPool pool({.threads = 2});
  std::atomic<int64_t> done = 0;
  {
    ThreadPool executor(1);
    for (int task = 0; task < 10; ++task) {
      executor.Post([&] {
        pool.ParallelFor(4 * kRange, nullptr, [&](int64_t begin, int64_t end) {
          done += end - begin;
        });
      });
    }
  }
  EXPECT_EQ(done, 10 * 4 * kRange);
}

TEST(WorkerPoolTest, ABodyMayCallAgain) {
  WorkerPool pool({.threads = 3});
  std::atomic<int64_t> done = 0;
  pool.ParallelFor(6 * kRange, nullptr, [&](int64_t, int64_t) {
    pool.ParallelFor(3 * kRange, nullptr,
                     [&](int64_t begin, int64_t end) { done += end - begin; });
  });
  EXPECT_EQ(done, 6 * 3 * kRange);
}

TEST(WorkerPoolTest, WorkersStepBackWhenCallersComeByThemselves) {
  WorkerPool pool({.threads = 2});
  std::atomic<bool> other_came = false;
  std::atomic<int> ranges_after = 0;
  std::latch both(2);
  std::thread other;
  // The first range of the one caller starts another caller, which holds its
  // first range until the end: from then on two callers are at work, and a
  // worker finishes at most what it is in.
  std::latch release(1);
  const std::thread::id caller = std::this_thread::get_id();
  pool.ParallelFor(40 * kRange, nullptr, [&](int64_t begin, int64_t) {
    if (begin == 0) {
      other = std::thread([&] {
        pool.ParallelFor(2 * kRange, nullptr, [&](int64_t first, int64_t) {
          if (first != 0) return;
          other_came = true;
          both.count_down();
          release.wait();
        });
      });
      both.arrive_and_wait();
      return;
    }
    if (other_came && std::this_thread::get_id() != caller) ++ranges_after;
  });
  release.count_down();
  other.join();
  // One that was taken before the other caller came, and read the flag after.
  EXPECT_LE(ranges_after, 1);
}

TEST(WorkerPoolTest, ServesManyCallersAtATime) {
  WorkerPool pool({.threads = 3});
  constexpr int kCallers = 4;
  constexpr int kCalls = 50;
  std::vector<int64_t> sums(kCallers, 0);
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      std::vector<uint8_t> touched(static_cast<size_t>(5 * kRange + c));
      for (int call = 0; call < kCalls; ++call) {
        pool.ParallelFor(std::ssize(touched), touched.data(),
                         [&](int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; i += 64) {
                             ++touched[static_cast<size_t>(i)];
                           }
                         });
      }
      for (uint8_t count : touched) sums[static_cast<size_t>(c)] += count;
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (int c = 0; c < kCallers; ++c) {
    EXPECT_EQ(sums[static_cast<size_t>(c)],
              kCalls * (5 * kRange / 64 + (c > 0 ? 1 : 0)));
  }
}

TEST(WorkerPoolTest, EveryRangeRunsInTheDefaultFloatingPointMode) {
  constexpr int kThreads = 2;
  WorkerPool pool({.threads = kThreads});
  std::atomic<int> kept = 0;
  std::latch all(kThreads);
  {
    const FlushingMode flushing;
    pool.ParallelFor(kThreads * kRange, nullptr, [&](int64_t, int64_t) {
      all.arrive_and_wait();
      volatile float least = 0x1p-126f;
      volatile float half = least * 0.5f;
      kept += half > 0;
    });
  }
  EXPECT_EQ(kept, kThreads);
}

TEST(WorkerPoolTest, TheProcessHasOneWithNoMoreThreadsThanProcessors) {
  EXPECT_EQ(&WorkerPool::Process(), &WorkerPool::Process());
  EXPECT_GE(WorkerPool::Process().threads(), 1);
  EXPECT_LE(WorkerPool::Process().threads(), sysconf(_SC_NPROCESSORS_ONLN));
}

TEST(WorkerPoolTest, PoolsThatShareCoresEachHaveAPart) {
  const int alone = WorkerPool().threads();
  EXPECT_EQ(WorkerPool({.sharers = 1}).threads(), alone);
  EXPECT_EQ(WorkerPool({.sharers = 2}).threads(), std::max(1, alone / 2));
  EXPECT_EQ(WorkerPool({.sharers = 10'000}).threads(), 1);
  // Who names a number has the number.
  EXPECT_EQ(WorkerPool({.threads = 2, .sharers = 2}).threads(), 2);
}

// The one processor that the calling thread may run on; -1 for several.
int OnlyProcessor() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  if (CPU_COUNT(&mask) != 1) return -1;
  int processor = 0;
  while (!CPU_ISSET(processor, &mask)) ++processor;
  return processor;
}

// On a machine that hwloc is told has two nodes, with one of our processors
// each.
TEST(WorkerPoolTest, WorkersAreBoundToNodesAndComeToMemoryOfTheirs) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  if (!CPU_ISSET(0, &mask) || !CPU_ISSET(1, &mask)) {
    GTEST_SKIP() << "needs processors 0 and 1";
  }
  const internal::PretendedMachine machine(
      "node:2 core:2 pu:1(indexes=0,2,1,3)", /*real=*/true);
  constexpr int kThreads = 4;
  WorkerPool pool({.threads = kThreads});

  const std::thread::id caller = std::this_thread::get_id();
  std::mutex mutex;
  std::multiset<int> processors;
  const auto look = [&] {
    if (std::this_thread::get_id() == caller) return;
    const int processor = OnlyProcessor();
    std::lock_guard lock(mutex);
    processors.insert(processor);
  };
  std::latch all(kThreads);
  pool.ParallelFor(kThreads * kRange, nullptr, [&](int64_t, int64_t) {
    look();
    all.arrive_and_wait();
  });
  EXPECT_EQ(processors, (std::multiset<int>{0, 1, 1}));

  // What the kernel, which knows one node only, has on the first one.
  const std::vector<char> memory(1 << 20, 1);
  processors.clear();
  std::latch both(2);
  pool.ParallelFor(2 * kRange, memory.data(), [&](int64_t, int64_t) {
    look();
    both.arrive_and_wait();
  });
  EXPECT_EQ(processors, (std::multiset<int>{0}));
}

TEST(WorkerPoolTest, StartsAndStopsWithoutEverBeingUsed) {
  for (int threads = 1; threads < 5; ++threads) {
    const WorkerPool pool({.threads = threads});
  }
}

TEST(WorkerPoolDeathTest, RefusesANegativeNumberOfThreads) {
  EXPECT_DEATH(WorkerPool({.threads = -1}), "threads >= 0");
}

// Others may be given to the workers before the last ranges are done.
TEST(WorkerPoolTest, SaysOnceThatAllRangesHaveBegun) {
  WorkerPool pool({.threads = 3});
  constexpr int64_t kRanges = 40;
  std::atomic<int64_t> begun = 0;
  std::atomic<int64_t> seen = -1;
  std::atomic<int> calls = 0;
  UniqueFunction<void()> all_begun = [&] {
    ++calls;
    seen = begun.load();
  };
  pool.ParallelFor(
      kRanges * WorkerPool::kRange, nullptr, [&](int64_t, int64_t) { ++begun; },
      &all_begun);
  EXPECT_EQ(calls, 1);
  // The last range may be counted after the call.
  EXPECT_GE(seen, kRanges - 3);
  pool.ParallelFor(
      WorkerPool::kRange, nullptr, [](int64_t, int64_t) {}, &all_begun);
  EXPECT_EQ(calls, 1);  // the caller made the range itself
}

}  // namespace
}  // namespace castor
