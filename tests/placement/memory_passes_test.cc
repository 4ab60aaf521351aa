// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/memory_passes.h"

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(MemoryPassesTest, AnUpdateReadsAndWritesAllThatItTouches) {
  const Elements one(1);
  EXPECT_EQ(UpdateBytes(kProbedUpdate, one), Bytes(28));
  // A gradient, and the value twice.
  EXPECT_EQ(UpdateBytes({}, one), Bytes(4 + 8));
  EXPECT_EQ(UpdateBytes({.states = 1}, one), Bytes(12 + 8));
  EXPECT_EQ(UpdateBytes({.state = DType::kBF16, .states = 2}, one),
            Bytes(12 + 8));
  // Gradients in fp32 beside parameters in less: a master, and its copy.
  EXPECT_EQ(UpdateBytes({.param = DType::kF16, .states = 2}, Elements(10)),
            Bytes(10 * (4 + 8 + 16 + 2)));
}

TEST(MemoryPassesTest, AGradientThatIsAddedReadsTheSumToo) {
  EXPECT_EQ(DepositBytes(Bytes(5), false), Bytes(10));
  EXPECT_EQ(DepositBytes(Bytes(5), true), Bytes(15));
  EXPECT_EQ(SquaresBytes(Bytes(5)), Bytes(5));
}

}  // namespace
}  // namespace castor
