// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MEASURE_LINE_FIT_H_
#define CASTOR_TOOLS_MEASURE_LINE_FIT_H_

// Part of the samples (samples.h): a link's latency and bandwidth from what
// transfers of several sizes took.
// Pure functions, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/status.h"
#include "placement/tier_model.h"
#include "tools/measure/samples.h"

namespace castor {

struct LineFit {
  double latency_seconds = 0;   // not negative
  double bytes_per_second = 0;  // positive
  // By how much the worst of the times differs from the line, as a share of
  // that time.
  double residual = 0;

  double SecondsOf(double bytes) const {
    return latency_seconds + bytes / bytes_per_second;
  }
};

// The line seconds = latency + bytes / bandwidth with the least sum of squares
// of relative errors ((line - time) / time). Relative, because sizes span
// orders of magnitude: with plain squares the largest alone would decide, and
// the latency, which is all that a small transfer takes, would be what is left
// of its noise. Robust regression is not needed on top of medians of repeated
// samples, which took the outliers out, and of three or four points Theil-Sen
// would drop more than it keeps. A latency below zero, where larger transfers
// leave the caches, becomes 0, and the bandwidth is fitted again.
//
// Unavailable where time does not grow with size, so that there is no
// bandwidth. REQUIRES: two different sizes at least, and positive times.
Result<LineFit> FitLine(std::span<const TimedSize> times);

// Rounded and brought within the limits of tier_model.h.
LinkModel LinkOf(const LineFit& fit);

// Of a collective of `world` ranks whose chunk's bytes, when whole, were the
// sizes fitted. REQUIRES: world >= 2.
RingModel RingOf(const LineFit& fit, int world);

// Likewise of a rate alone. REQUIRES: it is positive.
RateModel RateOf(double bytes_per_second);

}  // namespace castor

#endif  // CASTOR_TOOLS_MEASURE_LINE_FIT_H_
