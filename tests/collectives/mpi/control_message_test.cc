// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/control_message.h"

#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "collectives/internal/call_code.h"
#include "collectives/internal/collective_call.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor::internal {
namespace {

TEST(ControlMessageTest, CallsComeBackInEveryPart) {
  const CollectiveCall call = {
      .kind = CollectiveKind::kAllReduce,
      .tag = {ChunkId(3), 11, "norm", {Among::kReplicas, 4}},
      .count = int64_t{1} << 40,
      .dtype = DType::kF64,
      .op = ReduceOp::kMax,
      .root = 7};
  const std::string encoded = EncodeCall(call);
  ASSERT_OK_AND_ASSIGN(const CollectiveCall decoded, DecodeCall(encoded));
  EXPECT_TRUE(SameCall(decoded, call));
}

TEST(ControlMessageTest, TheEndComesBackWhole) {
  const ControlMessage message = {
      .kind = ControlKind::kEnd,
      .position = 5,
      .end = {.reason = DataLoss("checksum of rank 0"),
              .done_below = 17,
              .done = {19, 23},
              .sent = {{18, {3, 0}}, {20, {kAllPieces, kAllPieces}}}}};
  ASSERT_OK_AND_ASSIGN(const ControlMessage back,
                       DecodeMessage(EncodeMessage(message)));
  EXPECT_EQ(back.kind, ControlKind::kEnd);
  EXPECT_THAT(back.end.reason,
              StatusIs(ErrorCode::kDataLoss, "checksum of rank 0"));
  EXPECT_EQ(back.end.sent, message.end.sent);
  for (const int64_t done : {0, 16, 19, 23}) EXPECT_TRUE(back.end.Did(done));
  for (const int64_t not_done : {17, 18, 20, 24}) {
    EXPECT_FALSE(back.end.Did(not_done));
  }
}

// A message of another build ends the world with a sentence, and harms nobody.
TEST(ControlMessageTest, WhatIsCutOrTooLongIsRefused) {
  const std::string whole = EncodeMessage(
      {.kind = ControlKind::kEnd,
       .end = {.reason = IoError("disk"), .done = {1}, .sent = {{2, {1, 1}}}}});
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(DecodeMessage(whole.substr(0, size)).status(),
                StatusIs(ErrorCode::kInternal, Says("build")));
  }
  EXPECT_THAT(DecodeMessage(whole + "x").status(),
              StatusIs(ErrorCode::kInternal));
  EXPECT_THAT(DecodeCall("").status(), StatusIs(ErrorCode::kInternal));
}

}  // namespace
}  // namespace castor::internal
