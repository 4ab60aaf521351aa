// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/strip.h"

#include <vector>

#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(StripTest, NothingIsBlankAndAnythingAtAllIsNot) {
  const std::vector<double> shares = {-1, 0, 1e-9, 0.5, 0.87, 0.88, 1, 2};
  EXPECT_EQ(DrawStrip(shares, StripInk::kAscii), "  .+#@@@");
  EXPECT_EQ(DrawStrip({}, StripInk::kBlocks), "");
}

TEST(StripTest, BlocksAreUtf8) {
  const std::vector<double> shares = {0, 1};
  EXPECT_EQ(DrawStrip(shares, StripInk::kBlocks), " \u2588");
}

}  // namespace
}  // namespace castor
