// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The arena that a shared library makes, in whatever process this runs: with
// jemalloc preloaded it must be jemalloc's, else Castor's own. Which it is to
// be is told by CASTOR_EXPECTED_ALLOCATOR, "castor" where it is not set.

#include "offload/memory/host_jemalloc.h"

#include <cstdlib>
#include <string>

#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/contracts/pinned_arena_contract.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

INSTANTIATE_TEST_SUITE_P(Host, PinnedArenaContract,
                         testing::Values(&MakeHostPinnedArena));

std::string Expected() {
  const char* expected = std::getenv("CASTOR_EXPECTED_ALLOCATOR");
  return expected == nullptr ? "castor" : expected;
}

TEST(HostJemallocTest, AsksTheProcess) {
  EXPECT_EQ(HostJemalloc().has_value(), Expected() == "jemalloc");
  ASSERT_OK_AND_ASSIGN(const auto arena,
                       MakeHostPinnedArena({.budget = KiB(64)}));
  EXPECT_THAT(arena->stats().allocator, testing::StartsWith(Expected()));
}

}  // namespace
}  // namespace castor
