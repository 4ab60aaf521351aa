// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_KERNELS_OPTIMIZER_ARRAYS_H_
#define CASTOR_TESTS_OFFLOAD_KERNELS_OPTIMIZER_ARRAYS_H_

// The buffers of one optimizer step, of any types, each at an offset of its
// own, filled with what vector code gets wrong first. Values.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/numbers/block_codes.h"
#include "offload/kernels/optimizer.h"
#include "tests/offload/kernels/kernel_data.h"

namespace castor {

struct OptimizerTypes {
  DType grad = DType::kF32;
  DType moment = DType::kF32;
  DType low = DType::kF32;  // kF32: there is none
};

// Every combination there is.
inline std::vector<OptimizerTypes> AllOptimizerTypes() {
  std::vector<OptimizerTypes> all;
  for (DType grad : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (DType moment : {DType::kF32, DType::kBF16, DType::kBlocks8}) {
      for (DType low : {DType::kF32, DType::kBF16, DType::kF16}) {
        all.push_back({grad, moment, low});
      }
    }
  }
  return all;
}

class OptimizerArrays {
 public:
  // `offset` is in elements; the buffers' differ.
  OptimizerArrays(std::mt19937_64& random, const OptimizerTypes& types,
                  int64_t count, int64_t offset)
      : types_(types),
        count_(count),
        grad_(Make(types.grad, count, offset)),
        param_(Make(DType::kF32, count, (offset + 1) % 5)),
        exp_avg_(Make(types.moment, count, (offset + 2) % 5)),
        exp_avg_sq_(Make(types.moment, count, (offset + 3) % 5)),
        low_(Make(types.low, count, (offset + 4) % 5)) {
    FillHostile(random, types.grad, grad_);
    FillHostile(random, DType::kF32, param_);
    FillHostile(random, types.moment, exp_avg_);
    FillHostile(random, types.moment, exp_avg_sq_);
    if (IsBlocks8(types.moment)) {
      CalmMostBlocks(random);
      LeaveBlockEnds();
      FillHostile(random, types.low, low_);
      return;
    }
    // Negative values in it give NaN; most should not.
    const int64_t size = Size(types.moment);
    for (int64_t i = 0; i < count; ++i) {
      std::byte& sign = exp_avg_sq_.data()[i * size + size - 1];
      if (random() % 8 != 0) sign &= std::byte{0x7F};
    }
    FillHostile(random, types.low, low_);
  }

  // The same bytes at other offsets.
  OptimizerArrays AtOffset(int64_t offset) const {
    std::mt19937_64 any;
    OptimizerArrays copy(any, types_, count_, offset);
    copy.grad_.CopyFrom(grad_);
    copy.param_.CopyFrom(param_);
    copy.exp_avg_.CopyFrom(exp_avg_);
    copy.exp_avg_sq_.CopyFrom(exp_avg_sq_);
    copy.low_.CopyFrom(low_);
    return copy;
  }

  OptimizerBuffers Buffers(const MomentRounding& rounding = {}) {
    OptimizerBuffers buffers;
    buffers.grad = grad_.data();
    buffers.grad_dtype = types_.grad;
    buffers.param = reinterpret_cast<float*>(param_.data());
    buffers.exp_avg = exp_avg_.data();
    buffers.exp_avg_sq = exp_avg_sq_.data();
    buffers.moment_dtype = types_.moment;
    buffers.rounding = rounding;
    if (types_.low != DType::kF32) {
      buffers.low = low_.data();
      buffers.low_dtype = types_.low;
    }
    return buffers;
  }

  auto Bits() const {
    return std::tuple(param_.Bits(), exp_avg_.Bits(), exp_avg_sq_.Bits(),
                      low_.Bits(), grad_.Bits());
  }

 private:
  using Buffer = OffsetBuffer<std::byte>;

  // Where a buffer may begin: blocks begin where fp32 does.
  static int64_t Size(DType dtype) {
    return IsBlocks8(dtype) ? 4 : DTypeBits(dtype) / 8;
  }
  static Buffer Make(DType dtype, int64_t count, int64_t offset) {
    return Buffer(BytesToHold(Elements(count), dtype).count(),
                  offset * Size(dtype));
  }
  // One infinity or NaN makes all of a block NaN, so most blocks have neither.
  void CalmMostBlocks(std::mt19937_64& random) {
    for (int64_t i = 0; i < count_; ++i) {
      if (i / kBlockValues % 4 == 3) continue;
      const auto calm = [&random] {
        const float value =
            std::ldexp(1.0f + static_cast<float>(random() % 1000) / 1000,
                       10 - static_cast<int>(random() % 40));
        return random() % 2 == 0 ? value : -value;
      };
      const float grad = calm();
      const float param = calm();
      ConvertFromFloat(&grad, 1, types_.grad,
                       grad_.data() + i * Size(types_.grad));
      std::memcpy(param_.data() + i * 4, &param, sizeof(param));
    }
  }
  // Codes past the last element are zero, as every update leaves them.
  void LeaveBlockEnds() {
    const int64_t past = count_ % kBlockValues;
    if (past == 0) return;
    for (Buffer* moments : {&exp_avg_, &exp_avg_sq_}) {
      std::byte* const end = moments->data() + moments->size();
      std::fill(end - (kBlockValues - past), end, std::byte{0});
    }
  }
  static void FillHostile(std::mt19937_64& random, DType dtype,
                          Buffer& buffer) {
    if (IsBlocks8(dtype)) {
      // Any codes, and scales that are at least zero; most are ordinary.
      auto* const blocks = reinterpret_cast<CodeBlock*>(buffer.data());
      const auto count =
          buffer.size() / static_cast<int64_t>(sizeof(CodeBlock));
      for (int64_t b = 0; b < count; ++b) {
        blocks[b].scale =
            b % 4 == 3 ? std::abs(HostileFloat(random))
                       : std::ldexp(1.0f, static_cast<int>(random() % 40) - 30);
        for (uint8_t& code : blocks[b].codes) {
          code = static_cast<uint8_t>(random());
        }
      }
      return;
    }
    const int64_t size = Size(dtype);
    for (int64_t at = 0; at < buffer.size(); at += size) {
      uint32_t bits = std::bit_cast<uint32_t>(HostileFloat(random));
      if (dtype == DType::kBF16) bits >>= 16;
      if (dtype == DType::kF16) bits = HostileFloat16(random);
      std::memcpy(buffer.data() + at, &bits, static_cast<size_t>(size));
    }
  }

  OptimizerTypes types_;
  int64_t count_;
  Buffer grad_;
  Buffer param_;
  Buffer exp_avg_;
  Buffer exp_avg_sq_;
  Buffer low_;
};

// One of each formula: with and without weight decay in the gradient, momentum
// and Nesterov's.
inline std::vector<OptimizerOptions> OptimizersToTest() {
  std::vector<OptimizerOptions> all;
  for (OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                             OptimizerKind::kSgd, OptimizerKind::kLion}) {
    OptimizerOptions options = DefaultOptimizerOptions(kind);
    all.push_back(options);
    options.weight_decay = 0.1;
    options.momentum = 0.9;
    options.dampening = 0.25;
    all.push_back(options);
  }
  OptimizerOptions nesterov = DefaultOptimizerOptions(OptimizerKind::kSgd);
  nesterov.momentum = 0.9;
  nesterov.nesterov = true;
  all.push_back(nesterov);
  return all;
}

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_KERNELS_OPTIMIZER_ARRAYS_H_
