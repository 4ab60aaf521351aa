// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/event.h"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event_access.h"
#include "offload/lanes/event_state.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using internal::EventAccess;
using internal::EventState;
using testing::ElementsAre;

TEST(EventTest, ADefaultOneIsDoneAndOk) {
  const Event event;
  EXPECT_TRUE(event.done());
  EXPECT_THAT(event.status(), IsOk());
  EXPECT_THAT(event.Wait(), IsOk());
  int calls = 0;
  event.OnDone([&](const Status& status) {
    EXPECT_THAT(status, IsOk());
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(EventTest, CopiesCompleteTogether) {
  const EventSource source;
  const Event a = source.event();
  const Event b = a;
  EXPECT_FALSE(a.done());
  EXPECT_FALSE(b.done());
  source.Complete(TierFull("no slot"));
  EXPECT_THAT(a.status(), StatusIs(ErrorCode::kTierFull));
  EXPECT_THAT(b.status(), StatusIs(ErrorCode::kTierFull));
  EXPECT_THAT(source.event().status(), StatusIs(ErrorCode::kTierFull));
}

TEST(EventTest, CallbacksRunOnceInOrderBeforeAndAfterCompletion) {
  const EventSource source;
  const Event event = source.event();
  std::vector<int> calls;
  event.OnDone([&](const Status&) { calls.push_back(1); });
  event.OnDone([&](const Status&) { calls.push_back(2); });
  EXPECT_TRUE(calls.empty());
  source.Complete();
  EXPECT_THAT(calls, ElementsAre(1, 2));
  event.OnDone([&](const Status&) { calls.push_back(3); });
  EXPECT_THAT(calls, ElementsAre(1, 2, 3));
}

TEST(EventTest, CallbacksMayUseTheEventItself) {
  const EventSource source;
  const Event event = source.event();
  int calls = 0;
  event.OnDone([&](const Status&) {
    EXPECT_TRUE(event.done());
    EXPECT_THAT(event.Wait(), IsOk());
    event.OnDone([&](const Status&) { ++calls; });
  });
  source.Complete();
  EXPECT_EQ(calls, 1);
}

TEST(EventTest, ACallbackMayDestroyTheSourceThatCallsIt) {
  auto source = std::make_unique<EventSource>();
  int calls = 0;
  source->event().OnDone([&](const Status&) { source.reset(); });
  source->event().OnDone([&](const Status& status) {
    EXPECT_THAT(status, StatusIs(ErrorCode::kIoError));
    ++calls;
  });
  source->Complete(IoError("disk gone"));
  EXPECT_EQ(source, nullptr);
  EXPECT_EQ(calls, 1);
}

TEST(EventTest, ACompletionThatIsLostIsAnInternalError) {
  std::optional<EventSource> source(std::in_place);
  std::optional<EventSource> copy = source;
  const Event event = source->event();
  Status seen;
  event.OnDone([&](const Status& status) { seen = status; });
  source.reset();
  EXPECT_FALSE(event.done());
  copy.reset();
  ASSERT_TRUE(event.done());
  EXPECT_THAT(event.status(),
              StatusIs(ErrorCode::kInternal, Says("without completing")));
  EXPECT_THAT(seen, StatusIs(ErrorCode::kInternal));
}

TEST(EventTest, SettlingChangesNoAnswer) {
  Event none;
  none.Settle();
  EXPECT_TRUE(none.done());

  EventSource source;
  Event event = source.event();
  event.Settle();
  EXPECT_FALSE(event.done());
  source.Complete();
  const Event copy = event;
  event.Settle();
  EXPECT_TRUE(event.done());
  EXPECT_THAT(event.status(), IsOk());
  EXPECT_THAT(event.Wait(), IsOk());
  EXPECT_TRUE(copy.done());

  Event failed = Event::Failed(IoError("the drive is gone"));
  failed.Settle();
  EXPECT_THAT(failed.Wait(),
              StatusIs(ErrorCode::kIoError, "the drive is gone"));
}

TEST(EventDeathTest, CompletingTwiceIsADefect) {
  const EventSource source;
  source.Complete();
  EXPECT_DEATH(source.Complete(), "done");
}

TEST(EventDeathTest, AnUnfinishedEventHasNoStatus) {
  const EventSource source;
  EXPECT_DEATH(source.event().status().IgnoreError(), "done");
}

TEST(EventDeathTest, AFailedEventNeedsAFailure) {
  EXPECT_DEATH(Event::Failed(OkStatus()), "ok");
}

TEST(EventTest, WaitBlocksUntilAnotherThreadCompletes) {
  const EventSource source;
  std::atomic<int> woken = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([event = source.event(), &woken] {
      EXPECT_THAT(event.Wait(), StatusIs(ErrorCode::kAborted));
      ++woken;
    });
  }
  EXPECT_EQ(woken, 0);
  source.Complete(Aborted("stop"));
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(woken, 4);
}

// Whichever comes first, every callback runs exactly once.
TEST(EventTest, RegistrationMayRaceWithCompletion) {
  for (int round = 0; round < 200; ++round) {
    std::optional<EventSource> source(std::in_place);
    std::atomic<int> calls = 0;
    std::thread watcher([event = source->event(), &calls] {
      for (int i = 0; i < 8; ++i) {
        event.OnDone([&calls](const Status&) { ++calls; });
      }
    });
    std::thread completer(
        [mine = *std::exchange(source, std::nullopt)] { mine.Complete(); });
    watcher.join();
    completer.join();
    EXPECT_EQ(calls, 8);
  }
}

TEST(AllOfTest, OfNothingOrOfDoneEventsIsDone) {
  EXPECT_TRUE(AllOf({}).done());
  EXPECT_THAT(AllOf({}).status(), IsOk());
  EXPECT_TRUE(AllOf(std::vector<Event>(3)).done());
}

TEST(AllOfTest, WaitsForEveryEvent) {
  const EventSource a;
  const EventSource b;
  const std::vector<Event> events = {a.event(), Event(), b.event()};
  const Event all = AllOf(events);
  EXPECT_FALSE(all.done());
  b.Complete();
  EXPECT_FALSE(all.done());
  a.Complete();
  EXPECT_THAT(all.Wait(), IsOk());
}

TEST(AllOfTest, WaitsForTheRestAfterAFailure) {
  const EventSource a;
  const std::vector<Event> events = {Event::Failed(IoError("x")), a.event()};
  const Event all = AllOf(events);
  EXPECT_FALSE(all.done());
  a.Complete();
  EXPECT_THAT(all.Wait(), StatusIs(ErrorCode::kIoError, "x"));
}

TEST(AllOfTest, FailsWithTheFirstInOrderNotInTime) {
  const EventSource a;
  const EventSource b;
  const EventSource c;
  const std::vector<Event> events = {a.event(), b.event(), c.event()};
  const Event all = AllOf(events);
  c.Complete(IoError("c"));
  b.Complete(IoError("b"));
  a.Complete();
  EXPECT_THAT(all.Wait(), StatusIs(ErrorCode::kIoError, "b"));

  const std::vector<Event> done = {Event::Failed(IoError("1")),
                                   Event::Failed(IoError("2"))};
  EXPECT_THAT(AllOf(done).status(), StatusIs(ErrorCode::kIoError, "1"));
}

TEST(AllOfTest, SeesALostCompletion) {
  std::optional<EventSource> a(std::in_place);
  const EventSource b;
  const std::vector<Event> events = {a->event(), b.event()};
  const Event all = AllOf(events);
  a.reset();
  b.Complete();
  EXPECT_THAT(all.Wait(), StatusIs(ErrorCode::kInternal));
}

TEST(AllOfTest, EventsMayCompleteOnDifferentThreads) {
  for (int round = 0; round < 100; ++round) {
    std::vector<EventSource> sources(4);
    std::vector<Event> events;
    for (const EventSource& source : sources) events.push_back(source.event());
    std::vector<std::thread> threads;
    for (const EventSource& source : sources) {
      threads.emplace_back([source] { source.Complete(); });
    }
    EXPECT_THAT(AllOf(events).Wait(), IsOk());
    for (std::thread& thread : threads) thread.join();
  }
}

// A native event whose hardware is two members.
class HandMadeEvent final : public EventState {
 public:
  explicit HandMadeEvent(const void* device) : EventState(device) {}

  void Wait() override { SetDone(Aborted("waited")); }
  void OnDone(Callback callback) override {
    callbacks.push_back(std::move(callback));
  }

  bool reached = false;
  int questions = 0;
  std::vector<Callback> callbacks;

 private:
  bool Poll() override {
    ++questions;
    if (reached) SetDone(IoError("reached"));
    return reached;
  }
};

TEST(EventStateTest, ANativeEventIsAskedUntilItIsKnownDone) {
  const int device = 0;
  const auto state = std::make_shared<HandMadeEvent>(&device);
  const Event event = EventAccess::Make(state);
  EXPECT_EQ(EventAccess::StateOf(event), state.get());
  EXPECT_EQ(EventAccess::StateOf(event)->device(), &device);
  EXPECT_FALSE(event.done());
  EXPECT_FALSE(event.done());
  EXPECT_EQ(state->questions, 2);
  state->reached = true;
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(event.done());
  EXPECT_EQ(state->questions, 3);
  EXPECT_EQ(event.status().code(), ErrorCode::kIoError);
}

TEST(EventStateTest, WaitAndCallbacksAreItsOwn) {
  const int device = 0;
  const auto state = std::make_shared<HandMadeEvent>(&device);
  const Event event = EventAccess::Make(state);
  int calls = 0;
  event.OnDone([&](const Status&) { ++calls; });
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(event.Wait().code(), ErrorCode::kAborted);
  for (auto& callback : state->callbacks) callback(event.status());
  EXPECT_EQ(calls, 1);
}

TEST(EventStateTest, WithoutADeviceNobodyIsAsked) {
  const auto state = std::make_shared<HandMadeEvent>(nullptr);
  EXPECT_FALSE(EventAccess::Make(state).done());
  EXPECT_EQ(state->questions, 0);
}

TEST(EventStateTest, EventsOfTheHostHaveNoDevice) {
  const EventSource source;
  const Event event = source.event();
  ASSERT_NE(EventAccess::StateOf(event), nullptr);
  EXPECT_EQ(EventAccess::StateOf(event)->device(), nullptr);
  source.Complete();
  EXPECT_EQ(EventAccess::StateOf(Event()), nullptr);
}

}  // namespace
}  // namespace castor
