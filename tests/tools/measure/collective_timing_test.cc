// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/in_process_communicator.h"
#include "gtest/gtest.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

const std::vector<Bytes> kSizes = {KiB(16), KiB(64), KiB(256)};

TEST(CollectiveTimingTest, TimesBothAmongTheRanksOfAProcess) {
  ThreadPool pool(2);
  const auto ranks = MakeInProcessWorld({.world = 2, .executor = &pool});
  const Result<CollectiveTimes> times =
      TimeCollectives(ranks, pool, MiB(1), kSizes, {.seconds = 0.02});
  ASSERT_TRUE(times.ok()) << times.status();
  for (const auto* kind : {&times->all_gather, &times->reduce_scatter}) {
    ASSERT_EQ(kind->size(), kSizes.size());
    for (size_t i = 0; i < kSizes.size(); ++i) {
      EXPECT_EQ((*kind)[i].bytes, kSizes[i]);
      EXPECT_GT((*kind)[i].seconds, 0);
    }
  }
  // As much was exchanged as the calls say, and nothing was copied.
  EXPECT_GT(ranks[0]->stats().operations, 0);
  EXPECT_EQ(ranks[0]->stats().operations, ranks[1]->stats().operations);
  EXPECT_EQ(ranks[0]->stats().bytes_copied, Bytes(0));
}

TEST(CollectiveTimingTest, AWorldThatEndedIsAFailure) {
  ThreadPool pool(2);
  const auto ranks = MakeInProcessWorld({.world = 2, .executor = &pool});
  ranks[1]->Abort(IoError("a rank is gone"));
  EXPECT_EQ(TimeCollectives(ranks, pool, MiB(1), kSizes, {.seconds = 0.01})
                .status()
                .code(),
            ErrorCode::kIoError);
}

}  // namespace
}  // namespace castor
