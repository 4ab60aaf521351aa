// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_LR_SCHEDULE_H_
#define CASTOR_COLLECTIVES_LR_SCHEDULE_H_

// Learning rates that change from step to step: a linear warm-up, then a
// constant, a line or half a cosine (Loshchilov and Hutter 2017, "SGDR",
// without restarts) down to a floor. The engine is told a rate per step
// (ZeroEngine::Step, SetLearningRate); a schedule is where a trainer may take
// it from. A function of the step alone, so that a resumed run needs no state
// of it. Values and pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

enum class LrShape : uint8_t { kConstant, kLinear, kCosine };
inline constexpr LrShape kLrShapes[] = {LrShape::kConstant, LrShape::kLinear,
                                        LrShape::kCosine};

// "constant", "linear", "cosine".
std::string_view LrShapeName(LrShape shape);
// Empty for anything else.
std::optional<LrShape> ParseLrShape(std::string_view name);

struct LrSchedule {
  LrShape shape = LrShape::kConstant;
  double peak = 1e-3;  // reached at the end of the warm-up
  double floor = 0;    // reached at the last step, unless constant
  int64_t warmup = 0;  // steps: step i of them has i / warmup of the peak
  int64_t steps = 0;   // of the whole run, warm-up included
};

// InvalidArgument, with the numbers, where a schedule has no meaning.
Status CheckLrSchedule(const LrSchedule& schedule);

// The rate of step `step`, counted from 1; steps beyond the last have the
// last's. REQUIRES: CheckLrSchedule is ok, step >= 1.
double LearningRateAt(const LrSchedule& schedule, int64_t step);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_LR_SCHEDULE_H_
