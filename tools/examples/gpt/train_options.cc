// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/train_options.h"

#include <fmt/format.h>

#include "offload/host/available_memory.h"

namespace castor::gpt {

OptimizerGroup VectorsWithoutDecay() {
  return {.name = kVectorsGroup, .weight_decay = 0.0};
}

ZeroOptions EngineDefaults() {
  ZeroOptions options;
  options.optimizer.beta2 = 0.95;
  options.optimizer.weight_decay = 0.1;
  options.clip_norm = 1;
  return options;
}

Status Validate(const TrainOptions& options) {
  CASTOR_RETURN_IF_ERROR(Validate(options.model));
  const struct {
    const char* name;
    int64_t value;
  } counts[] = {{"batch", options.batch},
                {"accumulate", options.accumulate},
                {"ranks", options.ranks},
                {"steps", options.steps}};
  for (const auto& count : counts) {
    if (count.value < 1) {
      return InvalidArgument(fmt::format("{} is {}: it must be at least 1",
                                         count.name, count.value));
    }
  }
  if (options.dtype != DType::kF32 && options.dtype != DType::kBF16 &&
      options.dtype != DType::kF16) {
    return InvalidArgument(fmt::format(
        "cannot train in {}: use F32, BF16 or F16", DTypeName(options.dtype)));
  }
  if (options.digest_step > options.steps) {
    return InvalidArgument(
        fmt::format("there is no step {} to take a digest after: the run has "
                    "{} steps",
                    *options.digest_step, options.steps));
  }
  if (!(options.lr >= 0) || !(options.engine.clip_norm >= 0)) {
    return InvalidArgument(
        fmt::format("lr is {} and clip is {}: neither may be negative",
                    options.lr, options.engine.clip_norm));
  }
  if (options.engine.grad_mode == GradMode::kReuse && options.accumulate > 1) {
    return InvalidArgument(
        fmt::format("--grad-mode reuse writes gradients over parameters, which "
                    "{} micro-batches need again: take --accumulate 1, or "
                    "another mode",
                    options.accumulate));
  }
  CASTOR_RETURN_IF_ERROR(CheckLossScaling(options.engine.loss_scaling));
  return CheckLrSchedule(ScheduleOf(options));
}

LrSchedule ScheduleOf(const TrainOptions& options) {
  return {.shape = options.schedule,
          .peak = options.lr,
          .floor = options.lr_floor,
          .warmup = options.warmup,
          .steps = options.steps};
}

Bytes RoomForEverything(const TrainOptions& options) {
  // Parameter, gradient, master and both moments at home in fp32 at most, then
  // parameters and gradients gathered; twice that for padding and tails.
  constexpr int64_t kBytesPerElement = 2 * 7 * 4;
  return MiB(16) +
         Bytes(kBytesPerElement) * GptParams(options.model).elements();
}

// In floating point: what it is asked of may be absurd.
double TrainerBytes(const TrainOptions& options) {
  const GptConfig& model = options.model;
  const double tokens = static_cast<double>(options.batch) * model.context;
  const double per_block =
      16.0 * model.embd + static_cast<double>(model.heads) * model.context;
  const double per_token =
      model.layers * per_block + 8.0 * model.embd + model.vocab;
  return 4 * tokens * per_token * options.ranks;
}

Status CheckMemory(double bytes) {
  const auto available = internal::ReadSpareMemory();
  constexpr double kMiB = 1024.0 * 1024.0;
  if (!available.has_value() ||
      bytes <= static_cast<double>(available->bytes.count())) {
    return OkStatus();
  }
  return Unavailable(fmt::format(
      "the model's activations, and arrays outside Castor, take {:.0f} MiB; "
      "{:.0f} MiB are available ({}); use a smaller --batch, --seq or model",
      bytes / kMiB, static_cast<double>(available->bytes.count()) / kMiB,
      available->source));
}

}  // namespace castor::gpt
