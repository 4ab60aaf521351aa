// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "chunk/base/budget_text.h"
#include "chunk/base/dtype.h"
#include "chunk/base/units_text.h"
#include "chunk/param_spec.h"
#include "collectives/seal_plan.h"
#include "placement/trace.h"

namespace castor {
namespace {

constexpr Bytes kLeastChunk = MiB(32);
constexpr Bytes kMostChunk = MiB(512);
constexpr int64_t kBudgetsPerChunk = 8;
// A model so small that it would have few chunks of the least size is cut into
// smaller ones where its budget asks for that.
constexpr int64_t kChunksPerModel = 64;

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

ChunkBounds ChunkBoundsFor(Bytes model, std::optional<Bytes> device_budget,
                           std::optional<Bytes> said_least,
                           std::optional<Bytes> said_most) {
  ChunkBounds bounds{kLeastChunk, kMostChunk};
  // No budget is so small that its chunks are below what the model calls for:
  // what holds nothing tells no size.
  if (device_budget) {
    const Bytes least =
        std::min(kLeastChunk, RoundUp(model / kChunksPerModel, KiB(4)));
    const Bytes part = *device_budget / kBudgetsPerChunk;
    bounds.most = std::max({std::min(kMostChunk, part), least, KiB(4)});
  }
  if (said_most) bounds.most = *said_most;
  bounds.least = said_least.value_or(std::min(kLeastChunk, bounds.most));
  if (!said_most) bounds.most = std::max(bounds.most, bounds.least);
  return bounds;
}

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
  Result<StepForecast> forecast =
      ForecastStep(*seal, request.options, step.accesses);
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
