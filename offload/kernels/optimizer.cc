// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "chunk/base/check.h"
#include "chunk/base/units.h"
#include "offload/kernels/numbers/bfloat16.h"
#include "offload/kernels/numbers/block_codes.h"
#include "offload/kernels/numbers/float16.h"
#include "offload/kernels/numbers/float_mode.h"
#include "offload/kernels/optimizer_kernels.h"

namespace castor {
namespace {

// How many moments an update with these scalars reads and writes.
int MomentsOf(const OptimizerScalars& scalars) {
  switch (scalars.kind) {
    case OptimizerKind::kSgd:
      return scalars.beta1 == 0 ? 0 : 1;
    case OptimizerKind::kLion:
      return 1;
    case OptimizerKind::kCustom:
      CASTOR_CHECK(false);
    default:
      return 2;
  }
}

void Check(const OptimizerBuffers& b, const OptimizerScalars& scalars) {
  CASTOR_CHECK(b.grad_dtype == DType::kF32 || b.grad_dtype == DType::kBF16 ||
               b.grad_dtype == DType::kF16);
  CASTOR_CHECK(MomentsOf(scalars) == 0 || b.moment_dtype == DType::kF32 ||
               b.moment_dtype == DType::kBF16 || IsBlocks8(b.moment_dtype));
  CASTOR_CHECK(b.low == nullptr || b.low_dtype == DType::kBF16 ||
               b.low_dtype == DType::kF16);
}

float LoadAsFloat(const void* from, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kBF16:
      return BFloat16ToFloat(static_cast<const BFloat16*>(from)[i].bits);
    case DType::kF16:
      return Float16ToFloat(static_cast<const Float16*>(from)[i].bits);
    default:
      return static_cast<const float*>(from)[i];
  }
}

void StoreMoment(float value, const OptimizerBuffers& b, uint32_t chance,
                 void* to, int64_t i) {
  if (b.moment_dtype == DType::kF32) {
    static_cast<float*>(to)[i] = WithCanonicalNaN(value);
  } else {
    static_cast<BFloat16*>(to)[i].bits =
        b.rounding.stochastic ? FloatToBFloat16Stochastic(value, chance)
                              : FloatToBFloat16(value);
  }
}

// Updates the parameter's element and the moments given.
void UpdateValues(const OptimizerBuffers& b, int64_t i, int moments,
                  const OptimizerScalars& s, float grad_factor, float* m,
                  float* v) {
  const float g = LoadAsFloat(b.grad, b.grad_dtype, i) * grad_factor;
  float p = b.param[i];
  if (s.kind == OptimizerKind::kLion) {
    LionUpdate(s, g, &p, m);
  } else if (moments == 2) {
    AdamUpdate(s, g, &p, m, v);
  } else if (moments == 1) {
    MomentumUpdate(s, g, &p, m);
  } else {
    SgdUpdate(s, g, &p);
  }
  (b.new_param != nullptr ? b.new_param : b.param)[i] = WithCanonicalNaN(p);
  if (b.low == nullptr) return;
  if (b.low_dtype == DType::kF16) {
    static_cast<Float16*>(b.low)[i].bits = FloatToFloat16(p);
  } else {
    static_cast<BFloat16*>(b.low)[i].bits = FloatToBFloat16(p);
  }
}

void UpdateElement(const OptimizerBuffers& b, int64_t i, int moments,
                   const OptimizerScalars& s, float grad_factor) {
  float m = moments > 0 ? LoadAsFloat(b.exp_avg, b.moment_dtype, i) : 0;
  float v = moments > 1 ? LoadAsFloat(b.exp_avg_sq, b.moment_dtype, i) : 0;
  UpdateValues(b, i, moments, s, grad_factor, &m, &v);
  const uint32_t chance = StochasticBits(
      b.rounding.key, static_cast<uint64_t>(b.rounding.first_element + i));
  const bool aside = b.new_param != nullptr;
  if (moments > 0) {
    StoreMoment(m, b, chance & 0xFFFF, aside ? b.new_exp_avg : b.exp_avg, i);
  }
  if (moments > 1) {
    StoreMoment(v, b, chance >> 16, aside ? b.new_exp_avg_sq : b.exp_avg_sq, i);
  }
}

// Updates `count` elements from `begin` on, a block of moments at most.
void UpdateBlock(const OptimizerBuffers& b, int64_t begin, int64_t count,
                 int moments, const OptimizerScalars& s, float grad_factor) {
  const int64_t block = begin / kBlockValues;
  const auto at = [block](const void* blocks) {
    return static_cast<const CodeBlock*>(blocks) + block;
  };
  std::array<float, kBlockValues> m = {};
  std::array<float, kBlockValues> v = {};
  for (int64_t j = 0; j < count; ++j) {
    const auto i = static_cast<size_t>(j);
    m[i] = DecodeValue(at(b.exp_avg)->codes[i], at(b.exp_avg)->scale);
    if (moments > 1) {
      v[i] =
          DecodePositive(at(b.exp_avg_sq)->codes[i], at(b.exp_avg_sq)->scale);
    }
    UpdateValues(b, begin + j, moments, s, grad_factor, &m[i], &v[i]);
  }
  const auto random = [&b, begin](int64_t j, int shift) {
    const auto element =
        static_cast<uint64_t>(b.rounding.first_element + begin + j);
    return b.rounding.stochastic
               ? StochasticBits(b.rounding.key, element) >> shift & 0xFFFF
               : kNearest;
  };
  const bool aside = b.new_param != nullptr;
  EncodeBlock<false>(
      m.data(), count, [&](int64_t j) { return random(j, 0); },
      static_cast<CodeBlock*>(aside ? b.new_exp_avg : b.exp_avg) + block);
  if (moments < 2) return;
  EncodeBlock<true>(
      v.data(), count, [&](int64_t j) { return random(j, 16); },
      static_cast<CodeBlock*>(aside ? b.new_exp_avg_sq : b.exp_avg_sq) + block);
}

// Updates the elements from `begin` on, without vectors.
void UpdateFrom(const OptimizerBuffers& b, int64_t begin, int64_t count,
                int moments, const OptimizerScalars& s, float grad_factor) {
  if (moments > 0 && IsBlocks8(b.moment_dtype)) {
    for (; begin < count; begin += kBlockValues) {
      UpdateBlock(b, begin, std::min<int64_t>(kBlockValues, count - begin),
                  moments, s, grad_factor);
    }
    return;
  }
  for (; begin < count; ++begin) {
    UpdateElement(b, begin, moments, s, grad_factor);
  }
}

int64_t UpdateVectors(const OptimizerBuffers& buffers, int64_t count,
                      int moments, const OptimizerScalars& scalars,
                      float grad_factor) {
  if (scalars.kind == OptimizerKind::kLion) {
    return LionVectors(buffers, count, scalars, grad_factor);
  }
  if (moments == 2) return AdamVectors(buffers, count, scalars, grad_factor);
  if (moments == 1) {
    return MomentumVectors(buffers, count, scalars, grad_factor);
  }
  return SgdVectors(buffers, count, scalars, grad_factor);
}

// Where element `count` is.
template <typename Pointer>
Pointer Ahead(Pointer data, DType dtype, int64_t count) {
  if (data == nullptr) return data;
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>,
                                  const char*, char*>;
  return static_cast<Byte>(data) + BytesOf(Elements(count), dtype).count();
}

}  // namespace

OptimizerScalars ComputeOptimizerScalars(const OptimizerOptions& options,
                                         int64_t step) {
  CASTOR_CHECK_GE(step, 1);
  OptimizerScalars scalars;
  scalars.kind = options.kind;
  scalars.step_size = static_cast<float>(options.lr);
  const bool is_sgd = options.kind == OptimizerKind::kSgd;
  if (is_sgd || options.kind == OptimizerKind::kAdam) {
    scalars.l2 = static_cast<float>(options.weight_decay);
  } else {
    scalars.decay = static_cast<float>(1 - options.lr * options.weight_decay);
  }
  if (is_sgd) {
    scalars.nesterov = options.nesterov;
    scalars.beta1 = static_cast<float>(options.momentum);
    // PyTorch's moment starts as the first gradient, undamped.
    scalars.grad_weight1 =
        step == 1 ? 1 : static_cast<float>(1 - options.dampening);
    return scalars;
  }
  scalars.beta1 = static_cast<float>(options.beta1);
  scalars.grad_weight1 = static_cast<float>(1 - options.beta1);
  scalars.beta2 = static_cast<float>(options.beta2);
  scalars.grad_weight2 = static_cast<float>(1 - options.beta2);
  if (options.kind == OptimizerKind::kLion) return scalars;
  const double steps = static_cast<double>(step);
  const double bias1 = 1 - std::pow(options.beta1, steps);
  const double bias2 = 1 - std::pow(options.beta2, steps);
  scalars.step_size = static_cast<float>(options.lr / bias1);
  scalars.sqrt_bias2 = static_cast<float>(std::sqrt(bias2));
  scalars.eps = static_cast<float>(options.eps);
  return scalars;
}

MomentRounding MakeMomentRounding(const OptimizerOptions& options,
                                  uint64_t param, int64_t step,
                                  int64_t first_element) {
  MomentRounding rounding;
  rounding.stochastic = options.stochastic_rounding;
  rounding.key =
      MakeStochasticKey(options.seed, param, static_cast<uint64_t>(step));
  rounding.first_element = first_element;
  return rounding;
}

OptimizerBuffers SkipElements(const OptimizerBuffers& buffers, int64_t count) {
  OptimizerBuffers rest = buffers;
  rest.grad = Ahead(buffers.grad, buffers.grad_dtype, count);
  rest.param = buffers.param + count;
  rest.exp_avg = Ahead(buffers.exp_avg, buffers.moment_dtype, count);
  rest.exp_avg_sq = Ahead(buffers.exp_avg_sq, buffers.moment_dtype, count);
  if (buffers.new_param != nullptr) rest.new_param = buffers.new_param + count;
  rest.new_exp_avg = Ahead(buffers.new_exp_avg, buffers.moment_dtype, count);
  rest.new_exp_avg_sq =
      Ahead(buffers.new_exp_avg_sq, buffers.moment_dtype, count);
  rest.rounding.first_element += count;
  rest.low = Ahead(buffers.low, buffers.low_dtype, count);
  return rest;
}

void OptimizerStep(const OptimizerBuffers& buffers, int64_t count,
                   const OptimizerScalars& scalars, float grad_factor) {
  Check(buffers, scalars);
  const DefaultFloatMode mode;
  const int moments = MomentsOf(scalars);
  const int64_t done =
      UpdateVectors(buffers, count, moments, scalars, grad_factor);
  UpdateFrom(buffers, done, count, moments, scalars, grad_factor);
}

void OptimizerStepScalar(const OptimizerBuffers& buffers, int64_t count,
                         const OptimizerScalars& scalars, float grad_factor) {
  Check(buffers, scalars);
  const DefaultFloatMode mode;
  UpdateFrom(buffers, 0, count, MomentsOf(scalars), scalars, grad_factor);
}

}  // namespace castor
