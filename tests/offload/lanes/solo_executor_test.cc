// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/solo_executor.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/virtual_executor.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

TEST(SoloExecutorTest, TasksRunOnTheThreadThatWaits) {
  SoloExecutor world;
  const EventSource source;
  std::thread::id ran_on;
  world.Post([&] {
    ran_on = std::this_thread::get_id();
    source.Complete();
  });
  EXPECT_FALSE(source.event().done());
  EXPECT_TRUE(source.event().Wait().ok());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(world.NowNs(), 0);
}

TEST(SoloExecutorTest, TheEndRunsWhatIsLeft) {
  std::vector<int64_t> ran;
  {
    SoloExecutor world;
    world.At(20, [&] { ran.push_back(world.NowNs()); });
    world.Post([&] { world.At(5, [&] { ran.push_back(world.NowNs()); }); });
  }
  EXPECT_EQ(ran, (std::vector<int64_t>{5, 20}));
  // The thread waits by itself again.
  const EventSource source;
  std::thread other([source] { source.Complete(); });
  EXPECT_TRUE(source.event().Wait().ok());
  other.join();
}

// What happened, and when.
using Log = std::vector<std::pair<int64_t, int>>;

// Lanes wait for each other and for timers, by chance. Now and then the owner
// waits for a lane.
Log Play(uint64_t seed, Executor& executor, Timer& timer) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  Log log;
  std::vector<std::unique_ptr<WorkerLane>> lanes;
  for (int l = 0; l < 4; ++l) {
    lanes.push_back(
        std::make_unique<WorkerLane>("lane " + std::to_string(l), &executor));
  }
  std::vector<Event> events = {Event()};
  for (int i = 0; i < 200; ++i) {
    WorkerLane& lane = *lanes[below(lanes.size())];
    const Event event = events[below(events.size())];
    const auto ns = static_cast<int64_t>(below(4));
    switch (below(5)) {
      case 0:
        lane.Wait(event);
        break;
      case 1:
        lane.Run([&log, &timer, i] {
          log.emplace_back(timer.NowNs(), i);
          return OkStatus();
        });
        break;
      case 2:
        lane.RunAsync([&log, &timer, i, ns](EventSource source) {
          timer.At(timer.NowNs() + ns, [&log, &timer, i, source] {
            log.emplace_back(timer.NowNs(), i);
            source.Complete();
          });
        });
        break;
      case 3:
        events.push_back(lane.Record());
        break;
      default:
        if (below(4) > 0) break;
        EXPECT_TRUE(event.Wait().ok());
        log.emplace_back(timer.NowNs(), i);
    }
  }
  for (const auto& lane : lanes) EXPECT_TRUE(lane->Drain().ok());
  return log;
}

TEST(SoloExecutorTest, TheOrderIsThatOfAVirtualExecutor) {
  const uint64_t seed = TestSeed(11);
  for (int round = 0; round < TestRounds(200); ++round) {
    const uint64_t of_round = seed + static_cast<uint64_t>(round);
    SCOPED_TRACE(of_round);
    Log alone;
    {
      SoloExecutor world;
      alone = Play(of_round, world, world);
    }
    VirtualExecutor world;
    const VirtualParticipant participant(&world);
    ASSERT_EQ(alone, Play(of_round, world, world));
  }
}

}  // namespace
}  // namespace castor
