// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"
#include "collectives/sealing/seal_plan.h"
#include "placement/trace.h"

namespace castor {
namespace {

// What is used is on the device, whole, whatever homes there are.
Status CheckRoom(Bytes budget, const ChunkLayout& layout,
                 const StepTrace& step) {
  Bytes largest;
  for (const Access& access : step.accesses) {
    largest = std::max(largest, BytesOf(layout.chunk(access.chunk).size,
                                        layout.dtype(access.chunk)));
  }
  if (budget >= largest) return OkStatus();
  return Infeasible(fmt::format(
      "the device budget of {} does not hold one chunk: the largest has {}, "
      "and what a step uses lies on the device, whole, while it is used",
      BudgetText(budget), FormatBytes(largest)));
}

}  // namespace

Result<EnginePlan> PlanEngine(const EngineRequest& request,
                              const ChunkLayout& layout,
                              const StepTrace& step) {
  EnginePlan plan;
  plan.fits = CheckRoom(request.options.device_budget, layout, step);
  if (!plan.fits.ok()) return plan;
  Result<SealForecast> seal = ForecastSeal(request, layout);
  if (seal.status().code() == ErrorCode::kInfeasible) {
    plan.fits = seal.status();
    return plan;
  }
  CASTOR_RETURN_IF_ERROR(seal.status());
  Result<StepForecast> forecast = ForecastStep(*seal, request.options, step);
  if (forecast.status().code() == ErrorCode::kInfeasible) {
    plan.fits = forecast.status();
    return plan;
  }
  CASTOR_RETURN_IF_ERROR(forecast.status());
  plan.seal = *std::move(seal);
  plan.forecast = *std::move(forecast);
  return plan;
}

PlanFile PlanFileOf(const EngineRequest& request, const std::string& model,
                    bool processes) {
  PlanFile file;
  file.model = model;
  file.tensors = std::ssize(request.params);
  for (const ParamSpec& spec : request.params) {
    // The layout was made of these shapes.
    file.elements += CountElements(spec.shape, spec.dtype).value();
  }
  file.world = request.world;
  file.packing = PackingDigest(request.params);
  file.moments = MomentsText(request.options.optimizer);
  file.norm = CountsNorm(request.options);
  file.processes = processes;
  file.engine = request.options;
  return file;
}

}  // namespace castor
