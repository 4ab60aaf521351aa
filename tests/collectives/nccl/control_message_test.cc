// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/control_message.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor::internal {
namespace {

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
  const auto got = Decode(Body(Encode(sent)));
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(got->kind, sent.kind);
  EXPECT_EQ(got->rank, 3);
  EXPECT_EQ(got->position, sent.position);
  CollectiveCall call = sent.call;
  call.tag.purpose = "norm";
  EXPECT_TRUE(SameCall(got->Call(), call));
  EXPECT_THAT(got->status, StatusIs(ErrorCode::kDataLoss, "why"));
  EXPECT_EQ(got->payload, sent.payload);
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

}  // namespace
}  // namespace castor::internal
