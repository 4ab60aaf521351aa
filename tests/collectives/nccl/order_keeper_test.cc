// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the contract cannot bring about: an order of arrivals, a rank that dies,
// time.

#include "collectives/nccl/order_keeper.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

ControlMessage Ready(int64_t position) {
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
  for (const int64_t position : {0, 1, 2}) keeper.Take(0, Ready(position), 0);
  for (const int64_t position : {2, 0, 1}) keeper.Take(1, Ready(position), 0);
  EXPECT_THAT(Verdicts(keeper), IsEmpty());
  for (const int64_t position : {1, 2, 0}) keeper.Take(2, Ready(position), 0);
  EXPECT_THAT(Verdicts(keeper),
              ElementsAre(Pair(ControlKind::kGo, 1), Pair(ControlKind::kGo, 2),
                          Pair(ControlKind::kGo, 0)));
}

TEST(OrderKeeperTest, ARankThatDiesIsNamedWithWhatItMissed) {
  OrderKeeper keeper(2, 0, 0);
  keeper.Take(0, Ready(0), 0);
  keeper.Take(1, Ready(0), 0);
  keeper.Take(0, Ready(1), 0);
  keeper.Lost(1, "it was closed");
  EXPECT_THAT(keeper.ended(),
              StatusIs(ErrorCode::kAborted,
                       Says("rank 1 died", "closed", "not come to operation 1",
                            "chunk 4", "moment 11")));
  OrderKeeper between(2, 0, 0);
  between.Take(0, Ready(0), 0);
  between.Take(1, Ready(0), 0);
  between.Lost(1, "reset");
  EXPECT_THAT(between.ended().message(),
              Says("All ranks had come to operation 0, barrier"));
}

TEST(OrderKeeperTest, WhoeverLeavesInOrderIsNotMissed) {
  OrderKeeper keeper(2, 0, 0);
  keeper.Take(0, Ready(0), 0);
  keeper.Take(1, Ready(0), 0);
  keeper.Take(1, Leave(1), 0);
  keeper.Lost(1, "it was closed");
  EXPECT_THAT(keeper.ended(), IsOk());
  keeper.Take(0, Ready(1), 0);
  EXPECT_THAT(keeper.ended(),
              StatusIs(ErrorCode::kAborted, Says("rank 1 has left")));
}

TEST(OrderKeeperTest, TimeoutsNameWhoIsMissing) {
  OrderKeeper starting(4, 100, 1000);
  starting.Take(2, Ready(-1), 50);
  starting.CheckTimeout(1049);
  EXPECT_THAT(starting.ended(), IsOk());
  starting.CheckTimeout(1050);
  EXPECT_THAT(starting.ended(), StatusIs(ErrorCode::kAborted,
                                         Says("ranks 0-1 and 3 did not come")));
  OrderKeeper keeper(4, 100, 1000);
  keeper.Take(1, Ready(0), 950);
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
  twice.Take(1, Ready(3), 0);
  twice.Take(1, Ready(3), 0);
  EXPECT_THAT(twice.ended(),
              StatusIs(ErrorCode::kInternal, Says("operation 3 of the world")));
  OrderKeeper wrong(2, 0, 0);
  wrong.Take(1, {.kind = ControlKind::kGo}, 0);
  EXPECT_THAT(wrong.ended(), StatusIs(ErrorCode::kInternal));
}

}  // namespace
}  // namespace castor::internal
