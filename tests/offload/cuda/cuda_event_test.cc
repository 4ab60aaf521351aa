// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_event.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_core.h"
#include "offload/cuda/cuda_event_watcher.h"
#include "offload/lanes/event.h"
#include "offload/lanes/event_access.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

class CudaEventTest : public testing::Test {
 protected:
  std::shared_ptr<CudaEventState> Make(uint64_t sequence = 1) {
    return std::make_shared<CudaEventState>(core_, control_, sequence);
  }
  static Event AsEvent(const std::shared_ptr<CudaEventState>& state) {
    return internal::EventAccess::Make(state);
  }

  FakeCuda cuda_{{.threads = false}};
  ManualExecutor executor_;
  CudaEventWatcher watcher_{CudaEventWatcher::Thread::kNone};
  std::shared_ptr<CudaCore> core_ = std::make_shared<CudaCore>(
      &cuda_, 0, cuda_.Retained(0), "Fake GPU 0", &executor_, &watcher_);
  std::shared_ptr<CudaLaneControl> control_ =
      std::make_shared<CudaLaneControl>(Lane::OnFailure());
};

TEST_F(CudaEventTest, IsDoneWhenTheStreamGotThereAndGivesItsHandleBack) {
  const auto state = Make();
  const Event event = AsEvent(state);
  EXPECT_FALSE(event.done());
  state->Issue(nullptr);
  EXPECT_FALSE(event.done());
  cuda_.RunAll();
  EXPECT_TRUE(event.done());
  EXPECT_THAT(event.status(), IsOk());
  const int64_t queries = cuda_.calls("EventQuery");
  EXPECT_TRUE(event.done());  // known: nobody is asked
  EXPECT_EQ(cuda_.calls("EventQuery"), queries);
  const auto next = Make();
  next->Issue(nullptr);
  EXPECT_EQ(core_->events_created(), 1);
  cuda_.RunAll();
}

TEST_F(CudaEventTest, OneThatNobodyAskedForGivesItsHandleBackToo) {
  Make()->Issue(nullptr);
  Make()->Issue(nullptr);
  EXPECT_EQ(core_->events_created(), 1);
  cuda_.RunAll();
}

TEST_F(CudaEventTest, EndsAsItsLaneStoodThere) {
  control_->Fail(5, IoError("disk gone"));
  for (const auto& [sequence, code] :
       {std::pair(5, ErrorCode::kOk), std::pair(6, ErrorCode::kIoError)}) {
    const auto state = Make(static_cast<uint64_t>(sequence));
    state->Issue(nullptr);
    cuda_.RunAll();
    EXPECT_EQ(AsEvent(state).Wait().code(), code);
  }
}

TEST_F(CudaEventTest, CallbacksAreForTheCompletionThreadInOrder) {
  const auto state = Make();
  const Event event = AsEvent(state);
  std::vector<int> calls;
  event.OnDone([&](const Status&) { calls.push_back(1); });
  state->Issue(nullptr);
  event.OnDone([&](const Status&) { calls.push_back(2); });
  EXPECT_EQ(watcher_.Poll(), 1u);
  cuda_.RunAll();
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(calls.empty());  // asking runs no callback
  // One more waits its turn, though the event is done.
  event.OnDone([&](const Status&) { calls.push_back(3); });
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(watcher_.Poll(), 0u);
  EXPECT_THAT(calls, ElementsAre(1, 2, 3));
  event.OnDone([&](const Status&) { calls.push_back(4); });
  EXPECT_THAT(calls, ElementsAre(1, 2, 3, 4));
}

TEST_F(CudaEventTest, OfALaneOnlyTheFirstIsAskedFor) {
  std::vector<uint64_t> calls;
  std::vector<std::shared_ptr<CudaEventState>> states;
  for (uint64_t sequence = 1; sequence <= 10; ++sequence) {
    states.push_back(Make(sequence));
    cuda_.Launch(nullptr, [] {});
    states.back()->Issue(nullptr);
  }
  // In any order.
  for (const uint64_t sequence : {3u, 1u, 10u, 2u, 4u, 7u, 6u, 5u, 9u, 8u}) {
    AsEvent(states[sequence - 1]).OnDone([&calls, sequence](const Status&) {
      calls.push_back(sequence);
    });
  }
  const int64_t before = cuda_.calls("EventQuery");
  EXPECT_EQ(watcher_.Poll(), 10u);
  EXPECT_EQ(cuda_.calls("EventQuery") - before, 1);
  // Three pieces of work and their events.
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(cuda_.RunOne(nullptr));
  EXPECT_EQ(watcher_.Poll(), 7u);
  EXPECT_EQ(cuda_.calls("EventQuery") - before, 5);
  cuda_.RunAll();
  EXPECT_EQ(watcher_.Poll(), 0u);
  EXPECT_THAT(calls, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST_F(CudaEventTest, CallbacksMayUseTheEventItself) {
  const auto state = Make();
  const Event event = AsEvent(state);
  int calls = 0;
  event.OnDone([&](const Status&) {
    EXPECT_TRUE(event.done());
    EXPECT_THAT(event.Wait(), IsOk());
    event.OnDone([&](const Status&) { ++calls; });
  });
  state->Issue(nullptr);
  cuda_.RunAll();
  watcher_.Poll();
  EXPECT_EQ(calls, 1);
}

TEST_F(CudaEventTest, AStreamWaitsForItOnlyOnceItIsIssued) {
  using StreamWait = CudaEventState::StreamWait;
  CudaStream stream = nullptr;
  ASSERT_EQ(cuda_.StreamCreate(&stream), kCudaOk);
  const auto state = Make(10);
  int issued = 0;
  state->OnIssued([&] { ++issued; });
  EXPECT_EQ(state->MakeStreamWait(stream), StreamWait::kNotIssued);
  EXPECT_EQ(issued, 0);
  state->Issue(nullptr);
  EXPECT_EQ(issued, 1);
  state->OnIssued([&] { ++issued; });
  EXPECT_EQ(issued, 2);
  EXPECT_EQ(state->MakeStreamWait(stream), StreamWait::kQueued);
  cuda_.RunAll();
  EXPECT_TRUE(AsEvent(state).done());
  EXPECT_EQ(state->MakeStreamWait(stream), StreamWait::kDone);
  EXPECT_EQ(cuda_.calls("StreamWaitEvent"), 1);
  cuda_.StreamDestroy(stream);
}

TEST_F(CudaEventTest, EveryRefusedCallEndsItWithTheDevicesFailure) {
  for (const char* call : {"EventCreate", "EventRecord"}) {
    FakeCuda cuda({.threads = false});
    auto core = std::make_shared<CudaCore>(&cuda, 0, cuda.Retained(0),
                                           "Fake GPU 0", &executor_, &watcher_);
    cuda.FailCall(call, 1, 46);
    const auto control = std::make_shared<CudaLaneControl>(Lane::OnFailure());
    auto state = std::make_shared<CudaEventState>(core, control, 1);
    state->Issue(nullptr);
    EXPECT_THAT(AsEvent(state).Wait(),
                StatusIs(ErrorCode::kIoError, Says(call)))
        << call;
    EXPECT_FALSE(core->status().ok());
    cuda.RunAll();
  }
}

TEST_F(CudaEventTest, AFaultReachesThoseWhoAskAndThoseWhoWait) {
  const auto asked = Make(1);
  const auto waited = Make(2);
  cuda_.FailWork("EventRecord", 1, 719);
  asked->Issue(nullptr);
  waited->Issue(nullptr);
  cuda_.RunAll();
  EXPECT_TRUE(AsEvent(asked).done());
  EXPECT_THAT(AsEvent(asked).status(), StatusIs(ErrorCode::kIoError));
  EXPECT_THAT(AsEvent(waited).Wait(), StatusIs(ErrorCode::kIoError));
  EXPECT_TRUE(control_->failed());
}

// Blocked threads, one that asks, and one that reuses handles, all at once.
TEST(CudaEventThreadsTest, ManyThreadsMayWaitForOneEvent) {
  FakeCuda cuda;
  ManualExecutor executor;
  CudaEventWatcher watcher(CudaEventWatcher::Thread::kOwn);
  const auto core = std::make_shared<CudaCore>(
      &cuda, 0, cuda.Retained(0), "Fake GPU 0", &executor, &watcher);
  const auto control = std::make_shared<CudaLaneControl>(Lane::OnFailure());
  for (uint64_t round = 1; round <= 200; ++round) {
    const auto state = std::make_shared<CudaEventState>(core, control, round);
    const Event event = internal::EventAccess::Make(state);
    std::atomic<int> calls = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([event] { EXPECT_THAT(event.Wait(), IsOk()); });
    }
    threads.emplace_back([event, &calls] {
      for (int i = 0; i < 4; ++i) {
        event.OnDone([&calls](const Status&) { ++calls; });
      }
    });
    cuda.Launch(nullptr, [] { std::this_thread::yield(); });
    state->Issue(nullptr);
    while (!event.done()) std::this_thread::yield();
    for (std::thread& thread : threads) thread.join();
    while (calls < 4) std::this_thread::yield();
  }
  EXPECT_LE(core->events_created(), 3);
}

TEST(CudaEventWatcherTest, RunsWhatIsPostedInOrderWhenPolled) {
  CudaEventWatcher watcher(CudaEventWatcher::Thread::kNone);
  std::vector<int> ran;
  watcher.Post([&] {
    ran.push_back(1);
    watcher.Post([&] { ran.push_back(3); });
  });
  watcher.Post([&] { ran.push_back(2); });
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(watcher.Poll(), 1u);
  EXPECT_THAT(ran, testing::ElementsAre(1, 2));
  EXPECT_EQ(watcher.Poll(), 0u);
  EXPECT_THAT(ran, testing::ElementsAre(1, 2, 3));
}

TEST(CudaEventWatcherTest, ItsThreadRunsWhatIsPostedByManyBeforeItGoes) {
  std::atomic<int> ran = 0;
  {
    CudaEventWatcher watcher(CudaEventWatcher::Thread::kOwn);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 100; ++j) watcher.Post([&ran] { ++ran; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ran, 400);
}

TEST(CudaEventWatcherTest, ServesTheRestWhenItGoesWithoutAThread) {
  int ran = 0;
  {
    CudaEventWatcher watcher(CudaEventWatcher::Thread::kNone);
    watcher.Post([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace castor
