// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/toys/toy_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "offload/kernels/convert.h"

namespace castor {
namespace {

uint64_t Hash(uint64_t a, uint64_t b) {
  uint64_t h = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15ull);
  h ^= h >> 31;
  h *= 0xbf58476d1ce4e5b9ull;
  return h ^ (h >> 29);
}

// In [-1, 1).
float Noise(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<float>(static_cast<int64_t>(Hash(Hash(a, b), c) >> 40)) /
             8388608.0f -
         1.0f;
}

uint64_t Where(int step, int micro_batch) {
  return static_cast<uint64_t>(step) << 32 | static_cast<uint64_t>(micro_batch);
}

// Whether a share `share` of all gradients falls on this one; `kind` tells one
// question from another.
bool Drawn(const ToyRun& run, double share, uint64_t kind, size_t param,
           int step, int micro_batch) {
  if (share <= 0) return false;
  const float noise =
      Noise(run.seed ^ kind << 56, param, Where(step, micro_batch));
  return (noise + 1) / 2 < static_cast<float>(share);
}

bool Contains(const std::vector<int>& list, size_t param) {
  return std::find(list.begin(), list.end(), static_cast<int>(param)) !=
         list.end();
}

}  // namespace

ToyModel MakeToyModel(uint64_t seed, int count, int64_t largest, DType dtype) {
  std::mt19937_64 random(seed);
  ToyModel model;
  for (int p = 0; p < count; ++p) {
    ParamSpec spec;
    spec.name = "p" + std::to_string(p);
    spec.dtype = dtype;
    const int64_t size =
        1 + static_cast<int64_t>(random() % static_cast<uint64_t>(largest));
    spec.shape = {size};
    if (p == 1) spec.shape = {};
    if (p == 2) spec.shape = {4, 0};
    if (p == 3) spec.shape = {largest};
    model.params.push_back(std::move(spec));
  }
  return model;
}

namespace toy {

int64_t SizeOf(const ParamSpec& spec) {
  return CountElements(spec.shape, spec.dtype)->count();
}

float InitialValue(DType dtype, size_t param, int64_t element) {
  const float noise = Noise(param, static_cast<uint64_t>(element), 1);
  return dtype == DType::kU8 ? std::floor((noise + 1) * 128) : noise;
}

void AddGradient(const GradPlace& place, const void* weight, DType dtype,
                 int64_t count, void* grad, DType grad_dtype) {
  const auto size = static_cast<size_t>(count);
  std::vector<float> values(size, 0.0f);
  std::vector<float> sums(size);
  if (weight != nullptr) ConvertToFloat(weight, dtype, count, values.data());
  ConvertToFloat(grad, grad_dtype, count, sums.data());
  const uint64_t where = Hash(static_cast<uint64_t>(place.rank) << 32 |
                                  static_cast<uint64_t>(place.use),
                              Where(place.step, place.micro_batch));
  const auto scale = static_cast<float>(place.loss_scale);
  for (size_t i = 0; i < size; ++i) {
    const float gradient =
        0.25f * values[i] + Noise(place.param, i, where) * 0.5f;
    sums[i] += gradient * scale;
  }
  if (place.overflows && count > 0) {
    sums[0] = std::numeric_limits<float>::infinity();
  }
  ConvertFromFloat(sums.data(), count, grad_dtype, grad);
}

DType GradDType(DType dtype, bool fp32) { return fp32 ? DType::kF32 : dtype; }

bool Uses(const ToyModel& model, const ToyRun& run, size_t param, int step,
          int micro_batch) {
  return model.params[param].trainable && !Contains(run.unused, param) &&
         !Drawn(run, run.skipped, 1, param, step, micro_batch);
}

bool SkippedBy(const ToyRun& run, size_t param, int rank, int step,
               int micro_batch) {
  const auto r = static_cast<size_t>(rank);
  return (r < run.unused_by_rank.size() &&
          Contains(run.unused_by_rank[r], param)) ||
         (step >= run.missing_from &&
          Drawn(run, run.missing, 3 + r, param, step, micro_batch));
}

bool Irregular(const ToyRun& run) {
  return run.skipped > 0 || run.left_open > 0 || run.missing > 0 ||
         !run.unused_by_rank.empty();
}

bool LeftOpen(const ToyRun& run, size_t param, int step, int micro_batch) {
  return Drawn(run, run.left_open, 2, param, step, micro_batch);
}

bool Tied(const ToyRun& run, size_t param) { return Contains(run.tied, param); }

bool Overflows(const ToyRun& run, int rank, int step, int micro_batch,
               size_t param) {
  return run.overflows && run.overflows(rank, step, micro_batch, param);
}

uint64_t HashOf(const void* data, DType dtype, int64_t count) {
  uint64_t hash = static_cast<uint64_t>(count) + 1;
  if (dtype == DType::kF32) {
    const uint32_t* bits = static_cast<const uint32_t*>(data);
    for (int64_t i = 0; i < count; ++i)
      hash = hash * 0x100000001b3ull ^ bits[i];
  } else if (dtype == DType::kU8) {
    const uint8_t* bytes = static_cast<const uint8_t*>(data);
    for (int64_t i = 0; i < count; ++i)
      hash = hash * 0x100000001b3ull ^ bytes[i];
  } else {
    const uint16_t* bits = static_cast<const uint16_t*>(data);
    for (int64_t i = 0; i < count; ++i)
      hash = hash * 0x100000001b3ull ^ bits[i];
  }
  return hash | 1;
}

}  // namespace toy
}  // namespace castor
