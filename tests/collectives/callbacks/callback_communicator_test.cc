// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The contract over collectives of a host's, whose ranks are threads, and what
// only this backend promises.

#include "collectives/callbacks/callback_communicator.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/callbacks/words_slot.h"
#include "collectives/communicator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "tests/support/contracts/communicator_contract.h"
#include "tests/support/host_hub.h"
#include "tests/support/hosted_world.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::Not;

// Over collectives of threads.
class HubWorld final : public HostedWorld {
 public:
  HubWorld(int world, const CallbackOptions& options)
      : HubWorld(std::make_unique<HostHub>(world), world, options) {}

  ~HubWorld() override { Leave(); }

  HostHub& hub() { return *hub_; }

 private:
  HubWorld(std::unique_ptr<HostHub> hub, int world,
           const CallbackOptions& options)
      : HostedWorld(world, options, [&](int rank) { return hub->Of(rank); }),
        hub_(std::move(hub)) {}

  std::unique_ptr<HostHub> hub_;
};

// The last words of this process once they hold `what`, or after some seconds.
std::string WordsWith(const std::string& what) {
  std::string words;
  for (int i = 0; i < 2000 && words.find(what) == words.npos; ++i) {
    std::array<int, 2> ends;
    EXPECT_EQ(pipe(ends.data()), 0);
    internal::WriteWords(ends[1]);
    close(ends[1]);
    words.clear();
    std::array<char, 4096> part;
    for (ssize_t n; (n = read(ends[0], part.data(), part.size())) > 0;) {
      words.append(part.data(), static_cast<size_t>(n));
    }
    close(ends[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return words;
}

CommunicatorBackend Backend(int world, Bytes buffer) {
  return {.name = "World" + std::to_string(world) + "With" +
                  std::to_string(buffer / KiB(1)) + "KiB",
          .world = world,
          .make = [=](int64_t timeout_ns) -> std::unique_ptr<WorldUnderTest> {
            return std::make_unique<HubWorld>(
                world, CallbackOptions{.timeout_ns = timeout_ns,
                                       .exchange_buffer = buffer});
          }};
}

INSTANTIATE_TEST_SUITE_P(Callbacks, CommunicatorContract,
                         testing::Values(Backend(1, MiB(1)),
                                         Backend(2, Bytes(0)),
                                         Backend(3, MiB(1)),
                                         Backend(4, Bytes(0)),
                                         Backend(6, MiB(4))),
                         CommunicatorBackendName());

TEST(CallbackCommunicatorTest, RefusesWhatHasNoMeaning) {
  HostHub hub(1);
  const auto code = [&](int rank, int size, HostCollectives host,
                        const CallbackOptions& options) {
    return MakeCallbackCommunicator(rank, size, std::move(host), options)
        .status()
        .code();
  };
  EXPECT_EQ(code(1, 1, hub.Of(0), {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(0, 0, hub.Of(0), {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(0, 1, hub.Of(0), {.timeout_ns = -1}),
            ErrorCode::kInvalidArgument);
  HostCollectives missing = hub.Of(0);
  missing.all_to_all = nullptr;
  EXPECT_EQ(code(0, 1, missing, {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(hub.calls(0), 0u);
}

// A call of the host's that fails ends the world on all ranks, with its words
// on the rank where it failed.
TEST(CallbackCommunicatorTest, AHostThatFailsEndsTheWorldWithItsWords) {
  HubWorld world(3, {});
  world.hub().FailFrom(1, 1);
  world.ForEachRank([](RankUnderTest& self) {
    self.comm.Barrier(self.lane, Tag(-1, 1));
    const Status status = self.lane.Drain();
    EXPECT_EQ(status.code(), ErrorCode::kAborted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the network is down"));
    EXPECT_EQ(self.comm.Health().message(), status.message());
  });
}

// A process that is gone does not come to the round.
TEST(CallbackCommunicatorTest, AHostsCallThatDoesNotEndIsEnded) {
  HostHub hub(2);
  std::thread other([&] {
    HostCollectives host = hub.Of(1);
    EXPECT_THAT(host.barrier(0), IsOk());
  });
  auto made =
      MakeCallbackCommunicator(0, 2, hub.Of(0), {.timeout_ns = 50'000'000});
  other.join();
  ASSERT_THAT(made, IsOk());
  ThreadPool pool(1);
  WorkerLane lane("lane", &pool);
  (*made)->Barrier(lane, Tag(-1, 1));
  EXPECT_THAT(lane.Drain(),
              StatusIs(ErrorCode::kAborted, HasSubstr("has not ended in")));
}

// A host that knows who is missing has the error name them.
TEST(CallbackCommunicatorTest, ARankThatDoesNotComeToACallIsNamed) {
  HostHub hub(3);
  std::vector<std::thread> others;
  for (int rank : {1, 2}) {
    others.emplace_back(
        [&hub, rank] { EXPECT_THAT(hub.Of(rank).barrier(0), IsOk()); });
  }
  HostCollectives host = hub.Of(0);
  host.waits_for = [] { return std::vector<int>{2}; };
  auto made = MakeCallbackCommunicator(0, 3, std::move(host),
                                       {.timeout_ns = 50'000'000});
  for (std::thread& other : others) other.join();
  ASSERT_THAT(made, IsOk());
  ThreadPool pool(1);
  WorkerLane lane("lane", &pool);
  (*made)->Barrier(lane, Tag(7, 1));
  EXPECT_THAT(WordsWith("for rank 2"),
              HasSubstr("rank 0 of 3 was told to end (SIGTERM) while it waited "
                        "for rank 2 at operation 0 of the world, "));
  EXPECT_THAT(lane.Drain(),
              StatusIs(ErrorCode::kAborted,
                       HasSubstr("rank 2 did not come to operation 0")));
  EXPECT_THAT(WordsWith("had ended"),
              HasSubstr("after its world had ended: rank 2 did not come"));
}

// Rounds tell who has not come to an operation, though all ranks answer.
TEST(CallbackCommunicatorTest, LastWordsNameWhoHasNotCome) {
  HubWorld world(2, {});
  std::promise<void> looked;
  const std::shared_future<void> go_on = looked.get_future().share();
  world.ForEachRank([&](RankUnderTest& self) {
    self.comm.Barrier(self.lane, Tag(-1, 1));
    EXPECT_THAT(self.lane.Drain(), IsOk());
    if (self.comm.rank() == 1) {
      go_on.wait();
      self.comm.Barrier(self.lane, Tag(3, 2));
      EXPECT_THAT(self.lane.Drain(), IsOk());
      return;
    }
    self.comm.Barrier(self.lane, Tag(3, 2));
    const std::string words = WordsWith("for rank 1");
    EXPECT_THAT(words, HasSubstr("rank 0 of 2 was told to end (SIGTERM) while "
                                 "it waited for rank 1 at operation 1 of the "
                                 "world, "));
    EXPECT_THAT(words, HasSubstr("chunk 3"));
    // Rank 1 waits for nobody, and is quiet.
    EXPECT_THAT(words, Not(HasSubstr("no rank")));
    looked.set_value();
    EXPECT_THAT(self.lane.Drain(), IsOk());
    EXPECT_THAT(WordsWith("no rank"),
                HasSubstr("while it waited for no rank, after operation 1"));
  });
}

// The machine's, and what it slept.
class SleepyClock final : public Clock {
 public:
  int64_t NowNs() const override { return machine_.NowNs() + slept_ns; }
  std::atomic<int64_t> slept_ns = 0;

 private:
  SteadyClock machine_;
};

// Neither ends a world in which an operation waits, nor is it forgotten.
TEST(CallbackCommunicatorTest, TimeInWhichARankDidNotRunIsNobodysFault) {
  SleepyClock clock;
  HubWorld world(2, {.timeout_ns = 20'000'000'000, .clock = &clock});
  world.ForEachRank([&](RankUnderTest& self) {
    if (self.comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      clock.slept_ns = 3'600'000'000'000;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    self.comm.Barrier(self.lane, Tag(-1, 1));
    EXPECT_THAT(self.lane.Drain(), IsOk());
  });
  world.ForEachRank([&](RankUnderTest& self) {
    if (self.comm.rank() == 0) self.comm.Abort(DataLoss("checksum"));
    self.comm.Barrier(self.lane, Tag(-1, 2));
    const Status ended = self.lane.Drain();
    EXPECT_THAT(ended, StatusIs(ErrorCode::kDataLoss, HasSubstr("checksum")));
    EXPECT_THAT(std::string(ended.message()),
                HasSubstr("did not run for 3600."));
  });
}

TEST(CallbackCommunicatorTest, NoCallComesAfterTheEnd) {
  HostHub hub(2);
  {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&hub, rank] {
        auto made = MakeCallbackCommunicator(rank, 2, hub.Of(rank), {});
        ASSERT_THAT(made, IsOk());
        ThreadPool pool(1);
        WorkerLane lane("lane", &pool);
        (*made)->Barrier(lane, Tag(-1, 1));
        EXPECT_THAT(lane.Drain(), IsOk());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const uint64_t calls = hub.calls(0);
  EXPECT_EQ(hub.calls(1), calls);
  hub.Abort("nobody is there");
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_EQ(hub.calls(0), calls);
}

}  // namespace
}  // namespace castor
