// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/use_order.h"

#include <vector>

#include "chunk/base/ids.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/trace.h"

namespace castor {
namespace {

using testing::ElementsAre;

TEST(UseOrderTest, ChunksComeByFirstUseAndTheRestByNumber) {
  const ChunkId a(0), b(1), c(2), d(3);
  const Trace trace = {{AccessKind::kGradOpen, a}, {AccessKind::kUse, c},
                       {AccessKind::kUseEnd, c},   {AccessKind::kUse, b},
                       {AccessKind::kUse, c},      {AccessKind::kUseEnd, b}};
  EXPECT_THAT(OrderOfFirstUses(trace, 4), ElementsAre(c, b, a, d));
  EXPECT_THAT(OrderOfFirstUses({}, 2), ElementsAre(a, b));
}

}  // namespace
}  // namespace castor
