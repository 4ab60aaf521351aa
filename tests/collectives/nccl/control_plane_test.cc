// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Links and planes against a rank 0, or a rank, that the test plays by hand:
// it dies, hangs, sends rubbish, or is a stranger.

#include "collectives/nccl/control_plane.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/nccl/control_link.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/unique_fd.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

std::pair<ControlLink, ControlLink> Pair() {
  std::array<int, 2> ends{};
  CASTOR_CHECK_EQ(
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {ControlLink(UniqueFd(ends[0])), ControlLink(UniqueFd(ends[1]))};
}

ControlMessage Ready(int64_t position) {
  return {
      .kind = ControlKind::kReady,
      .position = position,
      .call = {.kind = CollectiveKind::kBarrier,
               .tag = {.chunk = ChunkId(6), .moment = 9, .purpose = "test"}}};
}

// Serves until something is heard.
ControlMessage Hear(ControlPlane& plane) {
  std::vector<ControlMessage> heard;
  while (heard.empty()) {
    plane.Serve(&heard);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return heard.front();
}

class OtherRankTest : public testing::Test {
 protected:
  explicit OtherRankTest() {
    auto [mine, zeros] = Pair();
    zero_.emplace(std::move(zeros));
    std::vector<ControlLink> links;
    links.push_back(std::move(mine));
    plane_.emplace(2, 3, std::move(links),
                   ControlTimeouts{.operation_ns = 1'000'000,
                                   .start_ns = 1'000'000'000,
                                   .slack_ns = 50'000'000});
  }
  std::optional<ControlLink> zero_;
  std::optional<ControlPlane> plane_;
};

TEST_F(OtherRankTest, NamesRankZeroWhenItDies) {
  plane_->Say(Ready(4));
  zero_.reset();
  EXPECT_THAT(
      Hear(*plane_).status,
      StatusIs(ErrorCode::kAborted, Says("rank 0 died", "rank 2", "operation 4",
                                         "chunk 6", "moment 9")));
}

TEST_F(OtherRankTest, NamesRankZeroWhenItHangs) {
  plane_->Say(Ready(4));
  EXPECT_THAT(
      Hear(*plane_).status,
      StatusIs(ErrorCode::kAborted,
               Says("rank 0, which keeps the order", "chunk 6", "moment 9")));
}

TEST_F(OtherRankTest, EndsByItselfWhenRankZeroGivesNoVerdict) {
  plane_->Say({.kind = ControlKind::kEnd, .status = DataLoss("mine")});
  EXPECT_THAT(Hear(*plane_).status, StatusIs(ErrorCode::kDataLoss, "mine"));
}

TEST_F(OtherRankTest, EndsWhenRankZeroLeaves) {
  plane_->Say(Ready(4));
  ASSERT_THAT(zero_->Send({.kind = ControlKind::kLeave, .position = 4}),
              IsOk());
  EXPECT_THAT(Hear(*plane_).status,
              StatusIs(ErrorCode::kAborted, Says("rank 0 has left")));
}

TEST_F(OtherRankTest, EndsOnRubbish) {
  const std::vector<std::byte> rubbish(64, std::byte{0xFF});
  ASSERT_EQ(write(zero_->fd(), rubbish.data(), rubbish.size()),
            std::ssize(rubbish));
  EXPECT_THAT(Hear(*plane_).status,
              StatusIs(ErrorCode::kAborted, Says("longer than any")));
}

TEST(ControlPlaneTest, RankZeroNamesARankThatDies) {
  auto [zeros, others] = Pair();
  std::vector<ControlLink> links;
  links.emplace_back(UniqueFd());
  links.push_back(std::move(zeros));
  ControlPlane plane(0, 2, std::move(links), {});
  plane.Say(Ready(7));
  std::optional<ControlLink> other(std::move(others));
  other.reset();
  EXPECT_THAT(Hear(plane).status,
              StatusIs(ErrorCode::kAborted, Says("rank 1 died", "operation 7",
                                                 "chunk 6", "moment 9")));
}

TEST(ControlLinkTest, LargeMessagesPassAndTheLastIsDelivered) {
  auto [one, other] = Pair();
  const ControlMessage large = {
      .kind = ControlKind::kGo,
      .payload = std::vector<std::byte>(3 << 20, std::byte{5})};
  const SteadyClock clock;
  std::thread writer([&] {
    for (int i = 0; i < 3; ++i) EXPECT_THAT(one.Send(large), IsOk());
    EXPECT_THAT(one.Send({.kind = ControlKind::kQuiet}), IsOk());
    one.CloseGracefully(clock.NowNs() + 10'000'000'000);
  });
  std::vector<ControlMessage> got;
  while (other.Receive(&got).ok()) std::this_thread::yield();
  other.CloseGracefully(clock.NowNs());
  writer.join();
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[2].payload, large.payload);
  EXPECT_EQ(got[3].kind, ControlKind::kQuiet);
}

TEST(ControlLinkTest, StrangersAreNotLetIn) {
  const SteadyClock clock;
  auto listener = ControlListener::Open("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  const ControlAddress address = listener->address();
  const int64_t deadline_ns = clock.NowNs() + 20'000'000'000;
  std::thread others([&] {
    // Of another job, whose token it has: its connection is closed.
    EXPECT_THAT(ConnectToRankZero(address, 1, "other", "facts", deadline_ns),
                StatusIs(ErrorCode::kUnavailable,
                         Says("rank 1 does not reach rank 0")));
    EXPECT_THAT(ConnectToRankZero(address, 1, "token", "facts", deadline_ns),
                IsOk());
  });
  EXPECT_THAT(listener->AcceptRanks(2, "token", "facts", deadline_ns), IsOk());
  others.join();
  EXPECT_THAT(
      ConnectToRankZero({.hosts = {"127.0.0.1"}, .port = 1}, 1, "token",
                        "facts", deadline_ns),
      StatusIs(ErrorCode::kUnavailable, Says("on port 1 of 127.0.0.1")));
}

TEST(ControlLinkTest, TwoRanksOfOneNumberAreRefused) {
  const SteadyClock clock;
  auto listener = ControlListener::Open("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  const int64_t deadline_ns = clock.NowNs() + 20'000'000'000;
  const auto twins = StatusIs(ErrorCode::kFailedPrecondition,
                              Says("say that they are rank 1"));
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      EXPECT_THAT(ConnectToRankZero(listener->address(), 1, "token", "facts",
                                    deadline_ns),
                  twins);
    });
  }
  EXPECT_THAT(listener->AcceptRanks(3, "token", "facts", deadline_ns), twins);
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace castor::internal
