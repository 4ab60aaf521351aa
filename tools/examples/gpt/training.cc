// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/training.h"

#include <fmt/format.h>

#include <cmath>

namespace castor::gpt {

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
  if (options.dtype != DType::kF32 && options.dtype != DType::kBF16) {
    return InvalidArgument(fmt::format("cannot train in {}: use F32 or BF16",
                                       DTypeName(options.dtype)));
  }
  if (!(options.lr >= 0) || !(options.clip_norm >= 0)) {
    return InvalidArgument(
        fmt::format("lr is {} and clip is {}: neither may be negative",
                    options.lr, options.clip_norm));
  }
  return OkStatus();
}

Bytes RoomForEverything(const TrainOptions& options) {
  // Parameter, gradient, master and both moments at home in fp32 at most, then
  // parameters and gradients gathered; twice that for padding and tails.
  constexpr int64_t kBytesPerElement = 2 * 7 * 4;
  return MiB(16) +
         Bytes(kBytesPerElement) * GptParams(options.model).elements();
}

}  // namespace castor::gpt
