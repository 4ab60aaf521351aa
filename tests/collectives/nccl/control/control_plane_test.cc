// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Links and planes against a rank 0, or a rank, that the test plays by hand:
// it dies, hangs, sends rubbish, or is a stranger.

#include "collectives/nccl/control/control_plane.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/nccl/control/control_link.h"
#include "collectives/nccl/control/control_message.h"
#include "collectives/nccl/control/order_keeper.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/nvme/queue/unique_fd.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

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
  ASSERT_OK_AND_ASSIGN(auto listener, ControlListener::Open("127.0.0.1"));
  const ControlAddress address = listener.address();
  const int64_t deadline_ns = clock.NowNs() + 20'000'000'000;
  std::thread others([&] {
    // Of another job, whose token it has: its connection is closed.
    EXPECT_THAT(ConnectToRankZero(address, 1, "other", "facts", deadline_ns),
                StatusIs(ErrorCode::kUnavailable,
                         Says("rank 1 does not reach rank 0")));
    EXPECT_THAT(ConnectToRankZero(address, 1, "token", "facts", deadline_ns),
                IsOk());
  });
  EXPECT_THAT(listener.AcceptRanks(2, "token", "facts", deadline_ns), IsOk());
  others.join();
  EXPECT_THAT(
      ConnectToRankZero({.hosts = {"127.0.0.1"}, .port = 1}, 1, "token",
                        "facts", deadline_ns),
      StatusIs(ErrorCode::kUnavailable, Says("on port 1 of 127.0.0.1")));
}

TEST(ControlLinkTest, TwoRanksOfOneNumberAreRefused) {
  const SteadyClock clock;
  ASSERT_OK_AND_ASSIGN(auto listener, ControlListener::Open("127.0.0.1"));
  const int64_t deadline_ns = clock.NowNs() + 20'000'000'000;
  const auto twins = StatusIs(ErrorCode::kFailedPrecondition,
                              Says("say that they are rank 1"));
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      EXPECT_THAT(ConnectToRankZero(listener.address(), 1, "token", "facts",
                                    deadline_ns),
                  twins);
    });
  }
  EXPECT_THAT(listener.AcceptRanks(3, "token", "facts", deadline_ns), twins);
  for (std::thread& other : others) other.join();
}

ControlMessage Sample() {
  return {.kind = ControlKind::kReady,
          .rank = 3,
          .position = int64_t{1} << 40,
          .call = {.kind = CollectiveKind::kAllReduce,
                   .tag = {.chunk = ChunkId(5),
                           .moment = 11,
                           .purpose = {},
                           .scope = {Among::kReplicas, 4}},
                   .count = 2,
                   .dtype = DType::kU64,
                   .op = ReduceOp::kMax,
                   .root = 1},
          .text = "norm",
          .status = DataLoss("why"),
          .payload = std::vector<std::byte>(16, std::byte{7})};
}

std::span<const std::byte> Body(const std::vector<std::byte>& bytes) {
  return std::span(bytes).subspan(kLengthBytes);
}

TEST(ControlMessageTest, ComesBackAsItWasSent) {
  const ControlMessage sent = Sample();
  ASSERT_OK_AND_ASSIGN(const auto got, Decode(Body(Encode(sent))));
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.position, sent.position);
  CollectiveCall call = sent.call;
  call.tag.purpose = "norm";
  EXPECT_TRUE(SameCall(got.Call(), call));
  EXPECT_THAT(got.status, StatusIs(ErrorCode::kDataLoss, "why"));
  EXPECT_EQ(got.payload, sent.payload);
}

TEST(ControlMessageTest, WhatIsNoneIsRefused) {
  const std::vector<std::byte> whole = Encode(Sample());
  const std::span<const std::byte> body = Body(whole);
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_THAT(Decode(body.first(size)), StatusIs(ErrorCode::kMalformed));
  }
  std::vector<std::byte> more(body.begin(), body.end());
  more.push_back(std::byte{0});
  EXPECT_THAT(Decode(more), StatusIs(ErrorCode::kMalformed));
  // Any bytes are read without harm, and what is taken is in range.
  std::mt19937_64 random(TestSeed(3));
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> broken(body.begin(), body.end());
    for (int i = 0; i < 3; ++i) {
      broken[random() % broken.size()] = std::byte(random() % 256);
    }
    const auto got = Decode(broken);
    if (!got.ok()) continue;
    EXPECT_FALSE(Describe(got->Call()).empty());
    EXPECT_GE(got->call.count, 0);
  }
}

// What the contract cannot bring about: an order of arrivals, a rank that dies,
// time.

ControlMessage Come(int64_t position) {
  return {.kind = ControlKind::kReady,
          .position = position,
          .call = {.kind = CollectiveKind::kBarrier,
                   .tag = {.chunk = ChunkId(4),
                           .moment = position + 10,
                           .purpose = {}}},
          .text = "test"};
}
ControlMessage Leave(int64_t position) {
  return {.kind = ControlKind::kLeave, .position = position};
}

std::vector<std::pair<ControlKind, int64_t>> Verdicts(OrderKeeper& keeper) {
  std::vector<std::pair<ControlKind, int64_t>> verdicts;
  for (const ControlMessage& each : keeper.TakeVerdicts()) {
    verdicts.emplace_back(each.kind, each.position);
  }
  return verdicts;
}

TEST(OrderKeeperTest, OperationsGoInTheOrderInWhichTheLastRankComes) {
  OrderKeeper keeper(3, 0, 0);
  for (const int64_t position : {0, 1, 2}) keeper.Take(0, Come(position), 0);
  for (const int64_t position : {2, 0, 1}) keeper.Take(1, Come(position), 0);
  EXPECT_THAT(Verdicts(keeper), IsEmpty());
  for (const int64_t position : {1, 2, 0}) keeper.Take(2, Come(position), 0);
  EXPECT_THAT(Verdicts(keeper),
              ElementsAre(Pair(ControlKind::kGo, 1), Pair(ControlKind::kGo, 2),
                          Pair(ControlKind::kGo, 0)));
}

TEST(OrderKeeperTest, ARankThatDiesIsNamedWithWhatItMissed) {
  OrderKeeper keeper(2, 0, 0);
  keeper.Take(0, Come(0), 0);
  keeper.Take(1, Come(0), 0);
  keeper.Take(0, Come(1), 0);
  keeper.Lost(1, "it was closed");
  EXPECT_THAT(keeper.ended(),
              StatusIs(ErrorCode::kAborted,
                       Says("rank 1 died", "closed", "not come to operation 1",
                            "chunk 4", "moment 11")));
  OrderKeeper between(2, 0, 0);
  between.Take(0, Come(0), 0);
  between.Take(1, Come(0), 0);
  between.Lost(1, "reset");
  EXPECT_THAT(between.ended().message(),
              Says("All ranks had come to operation 0, barrier"));
}

TEST(OrderKeeperTest, WhoeverLeavesInOrderIsNotMissed) {
  OrderKeeper keeper(2, 0, 0);
  keeper.Take(0, Come(0), 0);
  keeper.Take(1, Come(0), 0);
  keeper.Take(1, Leave(1), 0);
  keeper.Lost(1, "it was closed");
  EXPECT_THAT(keeper.ended(), IsOk());
  keeper.Take(0, Come(1), 0);
  EXPECT_THAT(keeper.ended(),
              StatusIs(ErrorCode::kAborted, Says("rank 1 has left")));
}

TEST(OrderKeeperTest, TimeoutsNameWhoIsMissing) {
  OrderKeeper starting(4, 100, 1000);
  starting.Take(2, Come(-1), 50);
  starting.CheckTimeout(1049);
  EXPECT_THAT(starting.ended(), IsOk());
  starting.CheckTimeout(1050);
  EXPECT_THAT(starting.ended(), StatusIs(ErrorCode::kAborted,
                                         Says("ranks 0-1 and 3 did not come")));
  OrderKeeper keeper(4, 100, 1000);
  keeper.Take(1, Come(0), 950);
  keeper.CheckTimeout(1049);
  EXPECT_THAT(keeper.ended(), IsOk());
  keeper.CheckTimeout(1050);
  EXPECT_THAT(keeper.ended(),
              StatusIs(ErrorCode::kAborted, Says("ranks 0 and 2-3 did not come",
                                                 "chunk 4", "moment 10")));
}

TEST(OrderKeeperTest, BuffersGoWhenNoDeviceTouchesThem) {
  OrderKeeper keeper(3, 0, 0);
  const ControlMessage quiet = {.kind = ControlKind::kQuiet};
  keeper.Take(0, {.kind = ControlKind::kEnd, .status = IoError("first")}, 0);
  keeper.Take(1, {.kind = ControlKind::kEnd, .status = IoError("second")}, 0);
  EXPECT_THAT(keeper.ended(), StatusIs(ErrorCode::kIoError, "first"));
  EXPECT_THAT(Verdicts(keeper), ElementsAre(Pair(ControlKind::kEnd, 0)));
  keeper.Take(0, quiet, 0);
  keeper.Take(1, quiet, 0);
  EXPECT_THAT(Verdicts(keeper), IsEmpty());
  keeper.Lost(2, "it died");  // and its device with it
  EXPECT_THAT(Verdicts(keeper), ElementsAre(Pair(ControlKind::kQuiet, 0)));
  keeper.Take(0, quiet, 0);
  EXPECT_THAT(Verdicts(keeper), IsEmpty());
}

TEST(OrderKeeperTest, NonsenseEndsTheWorld) {
  OrderKeeper twice(2, 0, 0);
  twice.Take(1, Come(3), 0);
  twice.Take(1, Come(3), 0);
  EXPECT_THAT(twice.ended(),
              StatusIs(ErrorCode::kInternal, Says("operation 3 of the world")));
  OrderKeeper wrong(2, 0, 0);
  wrong.Take(1, {.kind = ControlKind::kGo}, 0);
  EXPECT_THAT(wrong.ended(), StatusIs(ErrorCode::kInternal));
}

}  // namespace
}  // namespace castor::internal
