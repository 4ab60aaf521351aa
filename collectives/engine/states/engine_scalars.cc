// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/states/engine_scalars.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/text/json_value.h"
#include "chunk/text/quote.h"

namespace castor::internal {
namespace {

constexpr char kSeed[] = "optimizer_seed";
constexpr char kScale[] = "loss_scale";
constexpr char kCleanSteps[] = "loss_scale_clean_steps";
constexpr char kOverflowsLeft[] = "loss_scale_overflows_left";
constexpr char kSkippedSteps[] = "loss_scale_skipped_steps";

// Adam and AdamW differ in how they decay weights, not in what moments mean.
std::string_view MomentsMeaning(std::string_view optimizer) {
  return optimizer == "adamw" ? "adam" : optimizer;
}

// A count; -1 for what is none.
int64_t WholeOf(double number) {
  constexpr double kMost = 1'000'000'000;
  return number >= 0 && number <= kMost ? static_cast<int64_t>(number) : -1;
}

}  // namespace

EngineScalars ScalarsOf(const OptimizerOptions& optimizer,
                        const LossScaler& scaler,
                        const OptimizerGroups& groups) {
  EngineScalars scalars = {{kSeed, optimizer.seed}};
  if (scaler.looks_for_overflow()) {
    const LossScaleState& state = scaler.state();
    scalars.emplace(kScale, state.scale);
    scalars.emplace(kCleanSteps, state.clean_steps);
    scalars.emplace(kOverflowsLeft, int64_t{state.overflows_left});
    scalars.emplace(kSkippedSteps, state.skipped_steps);
  }
  for (const auto& [group, lr] : groups.GivenRates()) {
    std::string name = kLearningRateScalar;
    if (!group.empty()) name.append(".").append(group);
    scalars.emplace(std::move(name), lr);
  }
  return scalars;
}

Status CheckSameMoments(const CheckpointManifest& manifest,
                        const OptimizerOptions& optimizer) {
  const std::string_view own = OptimizerName(optimizer.kind);
  if (MomentsMeaning(own) != MomentsMeaning(manifest.optimizer)) {
    return InvalidArgument(fmt::format(
        "it was trained with {} and the engine's optimizer is {}, whose "
        "moments mean something else; use {}, or load weights only "
        "(optimizer_states = false)",
        Quoted(manifest.optimizer), own, Quoted(manifest.optimizer)));
  }
  const bool by_chance =
      optimizer.moment_dtype != DType::kF32 && optimizer.stochastic_rounding;
  const auto seed = manifest.engine.find(kSeed);
  const JsonValue own_seed(optimizer.seed);
  if (by_chance && seed != manifest.engine.end() &&
      !(seed->second == own_seed)) {
    return InvalidArgument(fmt::format(
        "its moments were rounded by chance with seed {}, and the engine "
        "has seed {}: set optimizer.seed to the same",
        seed->second.Dump(), own_seed.Dump()));
  }
  return OkStatus();
}

Status RestoreScaler(const EngineScalars& scalars, LossScaler* scaler) {
  if (!scalars.contains(kScale)) return OkStatus();
  const auto number = [&](const char* name) {
    const auto at = scalars.find(name);
    return at != scalars.end() && at->second.is_number() ? at->second.real()
                                                         : -1;
  };
  LossScaleState state;
  state.scale = number(kScale);
  state.clean_steps = WholeOf(number(kCleanSteps));
  state.overflows_left = static_cast<int32_t>(WholeOf(number(kOverflowsLeft)));
  state.skipped_steps = WholeOf(number(kSkippedSteps));
  return scaler->Restore(state).WithContext(
      "its loss scale (optimizer_states = false begins anew)");
}

Status RestoreRates(const EngineScalars& scalars, OptimizerGroups* groups) {
  for (const auto& [name, lr] : scalars) {
    std::string_view group = name;
    if (!group.starts_with(kLearningRateScalar)) continue;
    group.remove_prefix(std::string_view(kLearningRateScalar).size());
    if (group.starts_with('.')) group.remove_prefix(1);
    if (!groups->Find(group).ok()) continue;
    CASTOR_RETURN_IF_ERROR(
        groups->SetLearningRate(group, lr.is_number() ? lr.real() : -1)
            .WithContext(fmt::format(
                "its {} (optimizer_states = false begins anew)", name)));
  }
  return OkStatus();
}

}  // namespace castor::internal
