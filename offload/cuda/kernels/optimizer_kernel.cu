// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The fused optimizer pass: unscale and clip, update, low-precision write-back,
// in one read and one write of everything. The arithmetic is that of
// offload/kernels/optimizer_math.h, the same code as the host's. Types of
// buffers are told apart while the kernel runs, alike in all threads: it waits
// for memory, not for such branches.

#include <cstdint>

#include "offload/cuda/kernels/kernel_support.cuh"
#include "offload/cuda/kernels/kernels.h"
#include "offload/kernels/numbers/block_codes.h"
#include "offload/kernels/numbers/stochastic_rounding.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/optimizer_math.h"

namespace castor {
namespace {

// Which moments an update has, and its formulas.
struct AdamRule {
  static constexpr int kMoments = 2;
  __device__ static void Update(const OptimizerScalars& s, float g, float* p,
                                float* m, float* v) {
    AdamUpdate(s, g, p, m, v);
  }
};
struct SgdRule {
  static constexpr int kMoments = 0;
  __device__ static void Update(const OptimizerScalars& s, float g, float* p,
                                float*, float*) {
    SgdUpdate(s, g, p);
  }
};
struct MomentumRule {
  static constexpr int kMoments = 1;
  __device__ static void Update(const OptimizerScalars& s, float g, float* p,
                                float* m, float*) {
    MomentumUpdate(s, g, p, m);
  }
};
struct LionRule {
  static constexpr int kMoments = 1;
  __device__ static void Update(const OptimizerScalars& s, float g, float* p,
                                float* m, float*) {
    LionUpdate(s, g, p, m);
  }
};

constexpr int kWarp = 32;

// N elements from the Nth `i`: kPack at once, or one.
template <int N, typename T>
struct alignas(N * sizeof(T)) Group {
  T at[N];
};

template <int N, typename T>
__device__ void LoadAs(const void* from, int64_t i, float (&to)[N]) {
  const auto group = static_cast<const Group<N, T>*>(from)[i];
  for (int j = 0; j < N; ++j) to[j] = ToFloat(group.at[j]);
}

template <int N>
__device__ void Load(const void* from, DType dtype, int64_t i, float (&to)[N]) {
  if (dtype == DType::kF32) {
    LoadAs<N, float>(from, i, to);
  } else if (dtype == DType::kBF16) {
    LoadAs<N, BFloat16>(from, i, to);
  } else {
    LoadAs<N, Float16>(from, i, to);
  }
}

template <int N, typename T>
__device__ void StoreAs(const float (&from)[N], void* to, int64_t i) {
  Group<N, T> group;
  for (int j = 0; j < N; ++j) Store(from[j], &group.at[j]);
  static_cast<Group<N, T>*>(to)[i] = group;
}

template <int N>
__device__ void StoreLow(const float (&from)[N], DType dtype, void* to,
                         int64_t i) {
  if (dtype == DType::kBF16) {
    StoreAs<N, BFloat16>(from, to, i);
  } else {
    StoreAs<N, Float16>(from, to, i);
  }
}

// `shift` tells which half of an element's random bits rounds this moment.
template <int N>
__device__ void StoreMoment(const float (&from)[N], DType dtype,
                            const MomentRounding& rounding, int shift, void* to,
                            int64_t i) {
  if (dtype == DType::kF32) {
    StoreAs<N, float>(from, to, i);
    return;
  }
  if (!rounding.stochastic) {
    StoreAs<N, BFloat16>(from, to, i);
    return;
  }
  Group<N, BFloat16> group;
  for (int j = 0; j < N; ++j) {
    const int64_t element = rounding.first_element + i * N + j;
    const uint32_t random =
        StochasticBits(rounding.key, static_cast<uint64_t>(element));
    group.at[j].bits =
        FloatToBFloat16Stochastic(from[j], (random >> shift) & 0xFFFF);
  }
  static_cast<Group<N, BFloat16>*>(to)[i] = group;
}

template <typename Rule, int N>
__device__ void UpdateGroup(const OptimizerBuffers& b, int64_t i,
                            const OptimizerScalars& scalars,
                            float grad_factor) {
  float g[N];
  float p[N];
  float m[N] = {};
  float v[N] = {};
  Load<N>(b.grad, b.grad_dtype, i, g);
  LoadAs<N, float>(b.param, i, p);
  if constexpr (Rule::kMoments >= 1) Load<N>(b.exp_avg, b.moment_dtype, i, m);
  if constexpr (Rule::kMoments == 2) {
    Load<N>(b.exp_avg_sq, b.moment_dtype, i, v);
  }
  for (int j = 0; j < N; ++j) {
    Rule::Update(scalars, g[j] * grad_factor, &p[j], &m[j], &v[j]);
  }
  StoreAs<N, float>(p, b.param, i);
  if constexpr (Rule::kMoments >= 1) {
    StoreMoment<N>(m, b.moment_dtype, b.rounding, 0, b.exp_avg, i);
  }
  if constexpr (Rule::kMoments == 2) {
    StoreMoment<N>(v, b.moment_dtype, b.rounding, 16, b.exp_avg_sq, i);
  }
  if (b.low != nullptr) StoreLow<N>(p, b.low_dtype, b.low, i);
}

template <typename Rule>
__global__ void __launch_bounds__(kThreads)
    UpdateElements(OptimizerBuffers buffers, int64_t count, int64_t packs,
                   OptimizerScalars scalars, float grad_factor) {
  for (int64_t i = FirstOfThread(); i < packs; i += StepOfThreads()) {
    UpdateGroup<Rule, kPack>(buffers, i, scalars, grad_factor);
  }
  for (int64_t i = packs * kPack + FirstOfThread(); i < count;
       i += StepOfThreads()) {
    UpdateGroup<Rule, 1>(buffers, i, scalars, grad_factor);
  }
}

// The scale of the values that the warp's lanes have.
__device__ inline float ScaleOfWarp(const float (&values)[kPack]) {
  uint32_t most = 0;
  for (int j = 0; j < kPack; ++j) most = max(most, MagnitudeBits(values[j]));
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    most = max(most, __shfl_xor_sync(0xFFFFFFFF, most, apart));
  }
  return ScaleOfBlock(most);
}

// Encodes the lane's values, the rest of its codes being zero. `shift` as
// StoreMoment has it; every lane of the warp calls it.
template <bool kPositive>
__device__ void EncodeLane(const float (&values)[kPack], int64_t first,
                           const MomentRounding& rounding, int shift, int lane,
                           CodeBlock* to) {
  const float scale = ScaleOfWarp(values);
  const float inverse = scale > 0 ? InverseOfScale(scale) : 0;
  Group<kPack, uint8_t> codes;
  for (int j = 0; j < kPack; ++j) {
    const auto element =
        static_cast<uint64_t>(rounding.first_element + first + j);
    const uint32_t chance =
        rounding.stochastic
            ? (StochasticBits(rounding.key, element) >> shift) & 0xFFFF
            : kNearest;
    if (inverse == 0) {
      codes.at[j] = 0;
    } else {
      codes.at[j] = kPositive ? EncodePositive(values[j], inverse, chance)
                              : EncodeValue(values[j], inverse, chance);
    }
  }
  reinterpret_cast<Group<kPack, uint8_t>*>(to->codes)[lane] = codes;
  if (lane == 0) to->scale = scale;
}

// Updates N elements from the Nth `i`, whose moments are given.
template <typename Rule, int N>
__device__ void UpdateLane(const OptimizerBuffers& b, int64_t i,
                           const OptimizerScalars& scalars, float grad_factor,
                           float* m, float* v) {
  float g[N];
  float p[N];
  Load<N>(b.grad, b.grad_dtype, i, g);
  LoadAs<N, float>(b.param, i, p);
  for (int j = 0; j < N; ++j) {
    Rule::Update(scalars, g[j] * grad_factor, &p[j], &m[j], &v[j]);
  }
  StoreAs<N, float>(p, b.param, i);
  if (b.low != nullptr) StoreLow<N>(p, b.low_dtype, b.low, i);
}

// Moments in blocks of 8 bits: a warp updates a block, and each of its lanes
// kPack elements, at once where `packed` says that buffers are aligned so.
template <typename Rule>
__global__ void __launch_bounds__(kThreads)
    UpdateBlocks(OptimizerBuffers b, int64_t count, bool packed,
                 OptimizerScalars scalars, float grad_factor) {
  static_assert(kWarp * kPack == kBlockValues);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  auto* m_block = static_cast<CodeBlock*>(b.exp_avg) + FirstOfThread() / kWarp;
  auto* v_block =
      static_cast<CodeBlock*>(b.exp_avg_sq) + FirstOfThread() / kWarp;
  const int64_t step = StepOfThreads() / kWarp;
  for (int64_t block = FirstOfThread() / kWarp; block * kBlockValues < count;
       block += step, m_block += step, v_block += step) {
    const int64_t first = block * kBlockValues + lane * kPack;
    float m[kPack] = {};
    float v[kPack] = {};
    const auto* m_codes = m_block->codes + lane * kPack;
    const auto* v_codes = v_block->codes + lane * kPack;
    for (int j = 0; j < kPack && first + j < count; ++j) {
      m[j] = DecodeValue(m_codes[j], m_block->scale);
      if constexpr (Rule::kMoments == 2) {
        v[j] = DecodePositive(v_codes[j], v_block->scale);
      }
    }
    if (packed && first + kPack <= count) {
      UpdateLane<Rule, kPack>(b, first / kPack, scalars, grad_factor, m, v);
    } else {
      for (int j = 0; j < kPack && first + j < count; ++j) {
        UpdateLane<Rule, 1>(b, first + j, scalars, grad_factor, &m[j], &v[j]);
      }
    }
    // The greatest value of the warp is known behind every lane's reads.
    EncodeLane<false>(m, first, b.rounding, 0, lane, m_block);
    if constexpr (Rule::kMoments == 2) {
      EncodeLane<true>(v, first, b.rounding, 16, lane, v_block);
    }
  }
}

bool IsAlignedAs(const void* data, DType dtype) {
  const auto size = static_cast<uintptr_t>(DTypeBits(dtype) / 8);
  return reinterpret_cast<uintptr_t>(data) % (kPack * size) == 0;
}

// Whether every buffer may be accessed four elements at a time.
bool IsPacked(const OptimizerBuffers& b, int moments) {
  return IsAlignedAs(b.grad, b.grad_dtype) &&
         IsAlignedAs(b.param, DType::kF32) &&
         (moments < 1 || IsAlignedAs(b.exp_avg, b.moment_dtype)) &&
         (moments < 2 || IsAlignedAs(b.exp_avg_sq, b.moment_dtype)) &&
         (b.low == nullptr || IsAlignedAs(b.low, b.low_dtype));
}

template <typename Rule>
int LaunchRule(CudaStream stream, const OptimizerBuffers& buffers,
               int64_t count, const OptimizerScalars& scalars,
               float grad_factor) {
  if constexpr (Rule::kMoments > 0) {
    if (IsBlocks8(buffers.moment_dtype)) {
      return Launch<UpdateBlocks<Rule>>(count, kThreads * kPack, stream,
                                        buffers, count, IsPacked(buffers, 0),
                                        scalars, grad_factor);
    }
  }
  const int64_t packs = IsPacked(buffers, Rule::kMoments) ? count / kPack : 0;
  return Launch<UpdateElements<Rule>>(count, kThreads * kPack, stream, buffers,
                                      count, packs, scalars, grad_factor);
}

}  // namespace

int LaunchOptimize(CudaStream stream, const OptimizerBuffers& buffers,
                   int64_t count, const OptimizerScalars& scalars,
                   float grad_factor) {
  switch (scalars.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return LaunchRule<AdamRule>(stream, buffers, count, scalars, grad_factor);
    case OptimizerKind::kSgd:
      if (scalars.beta1 == 0) {
        return LaunchRule<SgdRule>(stream, buffers, count, scalars,
                                   grad_factor);
      }
      return LaunchRule<MomentumRule>(stream, buffers, count, scalars,
                                      grad_factor);
    case OptimizerKind::kLion:
      return LaunchRule<LionRule>(stream, buffers, count, scalars, grad_factor);
    case OptimizerKind::kCustom:
      break;
  }
  return kCudaInvalidValue;
}

}  // namespace castor
