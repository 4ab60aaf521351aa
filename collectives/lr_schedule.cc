// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "chunk/base/check.h"

namespace castor {

std::string_view LrShapeName(LrShape shape) {
  switch (shape) {
    case LrShape::kConstant:
      return "constant";
    case LrShape::kLinear:
      return "linear";
    case LrShape::kCosine:
      return "cosine";
  }
  return "unknown";
}

std::optional<LrShape> ParseLrShape(std::string_view name) {
  for (const LrShape shape : kLrShapes) {
    if (name == LrShapeName(shape)) return shape;
  }
  return std::nullopt;
}

Status CheckLrSchedule(const LrSchedule& schedule) {
  const auto is_rate = [](double lr) { return lr >= 0 && std::isfinite(lr); };
  if (!is_rate(schedule.peak) || !is_rate(schedule.floor)) {
    return InvalidArgument(fmt::format(
        "a learning rate that goes from {} to {} has no meaning: neither may "
        "be negative or infinite",
        schedule.peak, schedule.floor));
  }
  if (schedule.warmup < 0 || schedule.steps < 0) {
    return InvalidArgument(
        fmt::format("a schedule of {} steps with a warm-up of {} has no "
                    "meaning: neither may be negative",
                    schedule.steps, schedule.warmup));
  }
  if (schedule.shape != LrShape::kConstant &&
      schedule.warmup >= schedule.steps) {
    return InvalidArgument(fmt::format(
        "a warm-up of {} steps leaves nothing of a run of {} for the rate to "
        "fall in",
        schedule.warmup, schedule.steps));
  }
  return OkStatus();
}

double LearningRateAt(const LrSchedule& schedule, int64_t step) {
  CASTOR_CHECK_GE(step, 1);
  if (step <= schedule.warmup) {
    return schedule.peak * static_cast<double>(step) /
           static_cast<double>(schedule.warmup);
  }
  if (schedule.shape == LrShape::kConstant) return schedule.peak;
  const double done =
      static_cast<double>(std::min(step, schedule.steps) - schedule.warmup) /
      static_cast<double>(schedule.steps - schedule.warmup);
  const double left = schedule.shape == LrShape::kLinear
                          ? 1 - done
                          : (1 + std::cos(std::numbers::pi * done)) / 2;
  return schedule.floor + (schedule.peak - schedule.floor) * left;
}

}  // namespace castor
