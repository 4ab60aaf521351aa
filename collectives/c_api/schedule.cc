// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Learning rates by step, through the C ABI.

#include <fmt/format.h>

#include <cstdint>

#include "chunk/base/status.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/lr_schedule.h"

namespace castor::c_api {
namespace {

static_assert(CASTOR_CONSTANT == static_cast<int>(LrShape::kConstant) &&
              CASTOR_LINEAR == static_cast<int>(LrShape::kLinear) &&
              CASTOR_COSINE == static_cast<int>(LrShape::kCosine));

Status RateAt(const castor_schedule* given, int64_t step, double* rate) {
  if (given == nullptr || rate == nullptr) {
    return InvalidArgument("schedule or rate is null; give both");
  }
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const castor_schedule set = TakeStruct(*given);
  if (set.shape < CASTOR_CONSTANT || set.shape > CASTOR_COSINE) {
    return InvalidArgument(fmt::format(
        "there is no shape {}: give CASTOR_CONSTANT, CASTOR_LINEAR or "
        "CASTOR_COSINE",
        set.shape));
  }
  if (step < 1) {
    return InvalidArgument(
        fmt::format("steps are counted from 1, and this is step {}", step));
  }
  const LrSchedule schedule = {.shape = static_cast<LrShape>(set.shape),
                               .peak = set.peak,
                               .floor = set.floor,
                               .warmup = set.warmup,
                               .steps = set.steps};
  CASTOR_RETURN_IF_ERROR(CheckLrSchedule(schedule));
  *rate = LearningRateAt(schedule, step);
  return OkStatus();
}

}  // namespace
}  // namespace castor::c_api

extern "C" int32_t castor_schedule_rate(const castor_schedule* schedule,
                                        int64_t step, double* rate) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::RateAt(schedule, step, rate); });
}
