// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/measure/line_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chunk/base/check.h"

namespace castor {
namespace {

int64_t Whole(double value, int64_t least, int64_t most) {
  return static_cast<int64_t>(std::llround(std::clamp(
      value, static_cast<double>(least), static_cast<double>(most))));
}

int64_t BytesPerSecond(double value) {
  return Whole(value, kMinBytesPerSecond, kMaxBytesPerSecond);
}

int64_t Nanoseconds(double seconds) {
  return Whole(seconds * 1e9, 0, kMaxLatencyNs);
}

}  // namespace

Result<LineFit> FitLine(std::span<const TimedSize> times) {
  // With u = 1 / time and v = bytes / time, the relative error is
  // latency * u + slope * v - 1: two unknowns, normal equations.
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
  for (const TimedSize& time : times) {
    CASTOR_CHECK_GT(time.seconds, 0.0);
    const double weight = 1 / time.seconds;
    const double scaled = static_cast<double>(time.bytes.count()) * weight;
    uu += weight * weight;
    uv += weight * scaled;
    vv += scaled * scaled;
    u += weight;
    v += scaled;
  }
  const double determinant = uu * vv - uv * uv;
  CASTOR_CHECK_GT(determinant, 0.0);  // else all sizes are the same
  double latency = (u * vv - v * uv) / determinant;
  double slope = (v * uu - u * uv) / determinant;
  if (latency < 0) {
    latency = 0;
    slope = v / vv;
  }
  if (slope <= 0) {
    return Unavailable(fmt::format(
        "transfers of {} took as long as those of {}, so that no bandwidth "
        "can be told; measure with a larger --size",
        times.back().bytes.count(), times.front().bytes.count()));
  }
  LineFit fit{.latency_seconds = latency, .bytes_per_second = 1 / slope};
  for (const TimedSize& time : times) {
    const double line = fit.SecondsOf(static_cast<double>(time.bytes.count()));
    fit.residual =
        std::max(fit.residual, std::abs(line - time.seconds) / time.seconds);
  }
  return fit;
}

LinkModel LinkOf(const LineFit& fit) {
  return {.bytes_per_second = BytesPerSecond(fit.bytes_per_second),
          .latency_ns = Nanoseconds(fit.latency_seconds)};
}

RingModel RingOf(const LineFit& fit, int world) {
  CASTOR_CHECK_GE(world, 2);
  // world - 1 steps, each with a latency and a shard.
  const double steps = world - 1;
  return {
      .bytes_per_second = BytesPerSecond(fit.bytes_per_second * steps / world),
      .step_latency_ns = Nanoseconds(fit.latency_seconds / steps)};
}

RateModel RateOf(double bytes_per_second) {
  CASTOR_CHECK_GT(bytes_per_second, 0.0);
  return {.bytes_per_second = BytesPerSecond(bytes_per_second)};
}

}  // namespace castor
