// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/prefetch_flag.h"

#include <optional>
#include <string>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

TEST(PrefetchFlagTest, IsANumberOrDeadlines) {
  EXPECT_EQ(ParsePrefetchFlag(std::nullopt)->depth, 3);
  EXPECT_EQ(ParsePrefetchFlag(std::nullopt)->mode, PrefetchMode::kDepth);
  EXPECT_EQ(ParsePrefetchFlag("0")->depth, 0);
  EXPECT_EQ(ParsePrefetchFlag("1024")->depth, 1024);
  EXPECT_EQ(ParsePrefetchFlag("8")->mode, PrefetchMode::kDepth);
  EXPECT_EQ(ParsePrefetchFlag("deadlines")->mode, PrefetchMode::kDeadlines);
  EXPECT_EQ(ParsePrefetchFlag("deadlines")->depth, 3);
}

TEST(PrefetchFlagTest, AnythingElseIsRefused) {
  for (const std::string text : {"", "-1", "1025", "3x", " 3", "deadline",
                                 "1e3", "99999999999999999999"}) {
    EXPECT_THAT(ParsePrefetchFlag(text),
                StatusIs(ErrorCode::kInvalidArgument,
                         testing::HasSubstr("give a number from 0 to 1024, or "
                                            "deadlines")))
        << text;
  }
}

}  // namespace
}  // namespace castor
