// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/event_state.h"

#include <memory>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "offload/internal/event_access.h"

namespace castor::internal {
namespace {

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
  for (const auto& callback : state->callbacks) callback(event.status());
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
}  // namespace castor::internal
