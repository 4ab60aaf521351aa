// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "offload/twin/simulated_device.h"
#include "placement/tier_model.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

const std::vector<Bytes> kSizes = {KiB(64), KiB(256), MiB(1)};

TEST(CopyTimingTest, TimesEveryWayOnTheTwin) {
  ThreadPool pool(2);
  SimulatedDevice device({.capacity = MiB(4), .executor = &pool});
  const Result<CopyTimes> times =
      TimeCopies(device, MiB(4), kSizes, {.seconds = 0.02});
  ASSERT_TRUE(times.ok()) << times.status();
  for (const auto* way :
       {&times->to_device, &times->from_device, &times->to_device_duplex,
        &times->from_device_duplex}) {
    ASSERT_EQ(way->size(), kSizes.size());
    for (size_t i = 0; i < kSizes.size(); ++i) {
      EXPECT_EQ((*way)[i].bytes, kSizes[i]);
      EXPECT_GT((*way)[i].seconds, 0);
      EXPECT_GE((*way)[i].samples, 1);
    }
  }
}

// On the real clock: a copy takes what its link was declared to take, and on a
// busy machine more, but not that of another unit.
TEST(CopyTimingTest, MeasuresTheLinksOfATwinThatIsThrottled) {
  ThreadPool pool(2);
  SteadyTimer timer;
  const LinkModel in{.bytes_per_second = 100'000'000, .latency_ns = 500'000};
  const LinkModel out{.bytes_per_second = 50'000'000, .latency_ns = 300'000};
  SimulatedDevice device(
      {.capacity = MiB(2),
       .links = {.to_device = in, .from_device = out, .duplex = Duplex::kHalf},
       .executor = &pool,
       .timer = &timer});
  const Result<CopyTimes> times =
      TimeCopies(device, MiB(2), kSizes, {.seconds = 0.01});
  ASSERT_TRUE(times.ok()) << times.status();
  for (size_t i = 0; i < kSizes.size(); ++i) {
    const double to = LinkSeconds(in, 1, kSizes[i]);
    const double from = LinkSeconds(out, 1, kSizes[i]);
    EXPECT_GE(times->to_device[i].seconds, 0.999 * to);
    EXPECT_LE(times->to_device[i].seconds, 20 * to);
    EXPECT_GE(times->from_device[i].seconds, 0.999 * from);
    EXPECT_LE(times->from_device[i].seconds, 20 * from);
  }
  // One wire for both: large copies wait for each other.
  EXPECT_GT(times->to_device_duplex.back().seconds,
            1.2 * LinkSeconds(in, 1, kSizes.back()));
  EXPECT_GT(times->from_device_duplex.back().seconds,
            1.2 * LinkSeconds(out, 1, kSizes.back()));
}

TEST(CopyTimingTest, ADeviceThatIsTooSmallOrBreaksIsAFailure) {
  ThreadPool pool(1);
  SimulatedDevice small({.capacity = MiB(1), .executor = &pool});
  EXPECT_EQ(TimeCopies(small, MiB(4), kSizes, {}).status().code(),
            ErrorCode::kUnavailable);
  SimulatedDevice broken({.capacity = MiB(4), .executor = &pool});
  broken.InjectFailure(IoError("the link broke"), 20);
  EXPECT_EQ(
      TimeCopies(broken, MiB(4), kSizes, {.seconds = 0.01}).status().code(),
      ErrorCode::kIoError);
}

}  // namespace
}  // namespace castor
