// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/measure/line_fit.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

std::vector<TimedSize> Line(double latency, double bytes_per_second) {
  std::vector<TimedSize> times;
  for (const Bytes size : {KiB(256), MiB(1), MiB(4), MiB(16)}) {
    times.push_back({.bytes = size,
                     .seconds = latency + static_cast<double>(size.count()) /
                                              bytes_per_second,
                     .samples = 9});
  }
  return times;
}

TEST(LineFitTest, FindsALineExactly) {
  const LineFit fit = FitLine(Line(25e-6, 12.5e9)).value();
  EXPECT_NEAR(fit.latency_seconds, 25e-6, 1e-12);
  EXPECT_NEAR(fit.bytes_per_second, 12.5e9, 1);
  EXPECT_LT(fit.residual, 1e-9);
  EXPECT_EQ(LinkOf(fit), (LinkModel{12'500'000'000, 25'000}));
}

TEST(LineFitTest, NoOtherLineHasALeastSumOfRelativeSquares) {
  std::mt19937_64 random(TestSeed(1));
  std::uniform_real_distribution<double> noise(0.8, 1.25);
  for (int round = 0; round < 200; ++round) {
    std::vector<TimedSize> times = Line(30e-6, 5e9);
    for (TimedSize& time : times) time.seconds *= noise(random);
    const LineFit fit = FitLine(times).value();
    const auto sum = [&times](LineFit line) {
      double squares = 0;
      for (const TimedSize& time : times) {
        const double error =
            line.SecondsOf(static_cast<double>(time.bytes.count())) /
                time.seconds -
            1;
        squares += error * error;
      }
      return squares;
    };
    const double least = sum(fit);
    for (const double latency : {0.99, 1.0, 1.01}) {
      for (const double rate : {0.99, 1.0, 1.01}) {
        LineFit other = fit;
        other.latency_seconds *= latency;
        other.bytes_per_second *= rate;
        EXPECT_GE(sum(other), least * (1 - 1e-9));
      }
    }
    double worst = 0;
    for (const TimedSize& time : times) {
      worst = std::max(
          worst,
          std::abs(fit.SecondsOf(static_cast<double>(time.bytes.count())) /
                       time.seconds -
                   1));
    }
    EXPECT_NEAR(fit.residual, worst, 1e-12);
  }
}

TEST(LineFitTest, ALatencyIsNeverBelowZero) {
  // Small ones stay in the caches.
  std::vector<TimedSize> times = Line(0, 5e9);
  times[0].seconds /= 3;
  times[1].seconds /= 2;
  const LineFit fit = FitLine(times).value();
  EXPECT_EQ(fit.latency_seconds, 0);
  EXPECT_GT(fit.bytes_per_second, 5e9);
  EXPECT_GT(fit.residual, 0.1);
}

TEST(LineFitTest, TimesThatDoNotGrowAreNoLink) {
  std::vector<TimedSize> times = Line(1e-3, 1e15);
  for (TimedSize& time : times) time.seconds = 1e-3;
  times.back().seconds = 0.5e-3;
  const Status status = FitLine(times).status();
  EXPECT_EQ(status.code(), ErrorCode::kUnavailable);
  EXPECT_NE(status.message().find("--size"), std::string::npos);
}

TEST(LineFitTest, ARingTakesItsStepsOutOfTheLine) {
  // Four ranks: three steps of 5 us, three quarters of the bytes at 2 GB/s.
  const LineFit fit = FitLine(Line(15e-6, 2e9 * 4 / 3)).value();
  const RingModel ring = RingOf(fit, 4);
  EXPECT_EQ(ring, (RingModel{2'000'000'000, 5'000}));
  EXPECT_NEAR(RingSeconds(ring, 1, MiB(4), 4),
              fit.SecondsOf(static_cast<double>(MiB(4).count())), 1e-9);
}

TEST(LineFitTest, WhatIsWrittenIsWithinTheLimits) {
  EXPECT_EQ(LinkOf({.latency_seconds = 0, .bytes_per_second = 1e20}),
            (LinkModel{kMaxBytesPerSecond, 0}));
  EXPECT_EQ(LinkOf({.latency_seconds = 1e9, .bytes_per_second = 0.1}),
            (LinkModel{kMinBytesPerSecond, kMaxLatencyNs}));
  EXPECT_EQ(RateOf(1.6), (RateModel{kMinBytesPerSecond}));
  EXPECT_EQ(RateOf(2e6 + 0.6), (RateModel{2'000'001}));
}

}  // namespace
}  // namespace castor
