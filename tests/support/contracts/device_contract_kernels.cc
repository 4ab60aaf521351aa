// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Arithmetic: the host's bits, whatever the numbers.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>

#include "chunk/base/dtype.h"
#include "gmock/gmock.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/kernels/reduce.h"
#include "tests/offload/kernels/kernel_data.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/contracts/device_contract.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// None, less than any vector or thread block, and some that fill neither.
constexpr int64_t kCounts[] = {0, 1, 5, 63, 64, 65, 1000, 4099};

std::vector<std::byte> HostileNumbers(std::mt19937_64& random, DType dtype,
                                      int64_t count) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(BytesOf(Elements(count), dtype).count()));
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kF32) {
      const float value = HostileFloat(random);
      std::memcpy(bytes.data() + i * 4, &value, 4);
    } else {
      const uint16_t value = dtype == DType::kBF16 ? HostileBFloat16(random)
                                                   : HostileFloat16(random);
      std::memcpy(bytes.data() + i * 2, &value, 2);
    }
  }
  return bytes;
}

// What a trainer has: neither infinite nor a number of extreme size.
std::vector<float> OrdinaryNumbers(std::mt19937_64& random, int64_t count) {
  std::normal_distribution<float> normal(0, 0.5f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> Rounded(const std::vector<float>& values, DType dtype) {
  const auto count = std::ssize(values);
  std::vector<std::byte> bytes(
      static_cast<size_t>(BytesToHold(Elements(count), dtype).count()));
  ConvertFromFloat(values.data(), count, dtype, bytes.data());
  return bytes;
}

}  // namespace

TEST_P(DeviceContract, ConvertsToTheHostsBits) {
  std::mt19937_64 random(TestSeed(11));
  const Slab wide = OnDevice(KiB(200));
  const Slab narrow = OnDevice(KiB(200));
  const auto lane = device().MakeLane("convert");
  int combination = 0;
  for (const DType low : {DType::kBF16, DType::kF16}) {
    const Bytes low_size = BytesOf(Elements(1), low);
    for (const int64_t count : kCounts) {
      for (const int64_t first : {0, 1, 3}) {
        if (combination++ % TestStride() != 0) continue;
        const auto from = HostileNumbers(random, DType::kF32, count);
        std::vector<std::byte> rounded(
            static_cast<size_t>(low_size.count() * count));
        ConvertFromFloat(reinterpret_cast<const float*>(from.data()), count,
                         low, rounded.data());
        std::byte* const wide_at = wide.data() + first * 4;
        std::byte* const narrow_at = narrow.data() + first * low_size.count();
        Write(wide_at, from);
        device().Convert(*lane, wide_at, DType::kF32, narrow_at, low,
                         Elements(count));
        ASSERT_THAT(lane->Drain(), IsOk());
        ASSERT_TRUE(SameBytes(Read(narrow_at, low_size * count), rounded))
            << DTypeName(low) << ", " << count << " from " << first;

        const auto numbers = HostileNumbers(random, low, count);
        std::vector<float> widened(static_cast<size_t>(count));
        ConvertToFloat(numbers.data(), low, count, widened.data());
        Write(narrow_at, numbers);
        device().Convert(*lane, narrow_at, low, wide_at, DType::kF32,
                         Elements(count));
        ASSERT_THAT(lane->Drain(), IsOk());
        ASSERT_TRUE(SameBytes(Read(wide_at, Bytes(4) * count),
                              std::as_bytes(std::span(widened))))
            << DTypeName(low) << ", " << count << " from " << first;
      }
    }
  }
}

TEST_P(DeviceContract, AddsToTheHostsBits) {
  std::mt19937_64 random(TestSeed(12));
  const Slab total = OnDevice(KiB(200));
  const Slab part = OnDevice(KiB(200));
  const auto lane = device().MakeLane("add");
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const int64_t size = DTypeBits(dtype) / 8;
    for (const int64_t count : kCounts) {
      std::vector<std::byte> expected = HostileNumbers(random, dtype, count);
      const auto added = HostileNumbers(random, dtype, count);
      Write(total.data() + size, expected);
      Write(part.data(), added);
      AddInto(expected.data(), added.data(), dtype, count);
      device().AddInto(*lane, total.data() + size, part.data(), dtype,
                       Elements(count));
      ASSERT_THAT(lane->Drain(), IsOk());
      ASSERT_TRUE(
          SameBytes(Read(total.data() + size, Bytes(size * count)), expected))
          << DTypeName(dtype) << ", " << count;
    }
  }
}

TEST_P(DeviceContract, ScalesToTheHostsBits) {
  std::mt19937_64 random(TestSeed(14));
  const Slab data = OnDevice(KiB(200));
  const auto lane = device().MakeLane("scale");
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const int64_t size = DTypeBits(dtype) / 8;
    for (const int64_t count : kCounts) {
      for (const float factor : {0.5f, 0.0625f, 1 / 3.0f}) {
        auto expected = HostileNumbers(random, dtype, count);
        Write(data.data() + size, expected);
        Scale(expected.data(), dtype, count, factor);
        device().Scale(*lane, data.data() + size, dtype, Elements(count),
                       factor);
        ASSERT_THAT(lane->Drain(), IsOk());
        ASSERT_TRUE(
            SameBytes(Read(data.data() + size, Bytes(size * count)), expected))
            << DTypeName(dtype) << ", " << count << " by " << factor;
      }
    }
  }
}

// Several calls on one total, as a rank's parameters give it, also from two
// lanes in turn.
TEST_P(DeviceContract, SumsSquaresToTheHostsTotal) {
  std::mt19937_64 random(TestSeed(13));
  constexpr Bytes kWords(int64_t{8} * ExactSum::kWords);
  const Slab grads = OnDevice(KiB(200));
  const Slab words = OnDevice(kWords);
  const auto a = device().MakeLane("a");
  const auto b = device().MakeLane("b");
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const bool hostile : {false, true}) {
      ExactSum expected;
      device().Zero(*a, words.data(), kWords);
      for (const int64_t count : kCounts) {
        std::vector<std::byte> grad;
        if (hostile) {
          grad = HostileNumbers(random, dtype, count);
        } else {
          grad = Rounded(OrdinaryNumbers(random, count), dtype);
        }
        AddSquares(grad.data(), dtype, count, &expected);
        ASSERT_THAT(a->Drain(), IsOk());
        Write(grads.data(), grad);
        // A split at a multiple of 64 elements changes nothing.
        const int64_t half = count / 128 * 64;
        auto* const sum = reinterpret_cast<uint64_t*>(words.data());
        device().AddSquares(*b, grads.data(), dtype, Elements(half), sum);
        a->Wait(b->Record());
        device().AddSquares(
            *a, grads.data() + BytesOf(Elements(half), dtype).count(), dtype,
            Elements(count - half), sum);
        b->Wait(a->Record());
      }
      ASSERT_THAT(a->Drain(), IsOk());
      const auto read = Read(words.data(), kWords);
      ExactSum got;
      std::memcpy(got.words().data(), read.data(), read.size());
      EXPECT_EQ(got.overflowed(), expected.overflowed());
      EXPECT_EQ(got.overflowed(), hostile);
      if (!hostile) {
        EXPECT_TRUE(std::ranges::equal(got.words(), expected.words()));
      }
      EXPECT_EQ(std::bit_cast<uint64_t>(got.Total()),
                std::bit_cast<uint64_t>(expected.Total()));
    }
  }
}

namespace {

struct Pass {
  OptimizerKind kind;
  DType grad;
  DType moments;
  bool stochastic;
  bool has_low;
  DType low;
};

// The buffers of one pass, in plain memory or on the device.
struct PassBuffers {
  std::byte* grad;
  std::byte* param;
  std::byte* exp_avg;
  std::byte* exp_avg_sq;
  std::byte* low;
};

OptimizerBuffers BuffersOf(const Pass& pass, const PassBuffers& at,
                           int moments) {
  OptimizerBuffers buffers;
  buffers.grad = at.grad;
  buffers.grad_dtype = pass.grad;
  buffers.param = reinterpret_cast<float*>(at.param);
  if (moments > 0) buffers.exp_avg = at.exp_avg;
  if (moments > 1) buffers.exp_avg_sq = at.exp_avg_sq;
  buffers.moment_dtype = pass.moments;
  buffers.rounding.stochastic = pass.stochastic;
  buffers.rounding.key = MakeStochasticKey(7, 3, 2);
  buffers.rounding.first_element = 1'000'000'007;
  if (pass.has_low) {
    buffers.low = at.low;
    buffers.low_dtype = pass.low;
  }
  return buffers;
}

}  // namespace

TEST_P(DeviceContract, OptimizesToTheHostsBits) {
  int combination = 0;
  std::mt19937_64 random(TestSeed(14));
  const Slab slabs[] = {OnDevice(KiB(200)), OnDevice(KiB(200)),
                        OnDevice(KiB(200)), OnDevice(KiB(200)),
                        OnDevice(KiB(200))};
  const PassBuffers on_device = {slabs[0].data() + 4, slabs[1].data() + 4,
                                 slabs[2].data() + 4, slabs[3].data() + 4,
                                 slabs[4].data() + 4};
  const auto lane = device().MakeLane("optimize");
  const Pass passes[] = {
      {OptimizerKind::kAdamW, DType::kF32, DType::kF32, false, false,
       DType::kBF16},
      {OptimizerKind::kAdamW, DType::kBF16, DType::kF32, false, true,
       DType::kBF16},
      {OptimizerKind::kAdamW, DType::kBF16, DType::kBF16, true, true,
       DType::kBF16},
      {OptimizerKind::kAdamW, DType::kF16, DType::kBF16, false, true,
       DType::kF16},
      {OptimizerKind::kAdam, DType::kF32, DType::kBF16, true, false,
       DType::kBF16},
      {OptimizerKind::kSgd, DType::kBF16, DType::kF32, false, true,
       DType::kBF16},
      {OptimizerKind::kLion, DType::kBF16, DType::kBF16, true, true,
       DType::kBF16},
      {OptimizerKind::kAdamW, DType::kBF16, DType::kBlocks8, true, true,
       DType::kBF16},
      {OptimizerKind::kAdam, DType::kF32, DType::kBlocks8, false, false,
       DType::kBF16},
      {OptimizerKind::kLion, DType::kF16, DType::kBlocks8, true, true,
       DType::kF16},
  };
  for (const Pass& pass : passes) {
    for (const bool momentum : {false, true}) {
      OptimizerOptions options = DefaultOptimizerOptions(pass.kind);
      options.weight_decay = 0.1;
      if (pass.kind == OptimizerKind::kSgd) {
        options.momentum = momentum ? 0.9 : 0;
        options.nesterov = momentum;
      } else if (momentum) {
        continue;
      }
      const int moments = MomentsOf(options);
      for (const int64_t count : kCounts) {
        // A third, which has every pass and every count: devices are many.
        if (combination++ % (3 * TestStride()) != 0) continue;
        // Ordinary numbers, so that the bits are those of the arithmetic; one
        // hostile gradient in a hundred.
        std::vector<float> grads = OrdinaryNumbers(random, count);
        for (size_t i = 50; i < grads.size(); i += 100) {
          grads[i] = HostileFloat(random);
        }
        auto grad = pass.grad == DType::kF16
                        ? HostileNumbers(random, DType::kF16, count)
                        : Rounded(grads, pass.grad);
        auto param = Rounded(OrdinaryNumbers(random, count), DType::kF32);
        auto first = Rounded(OrdinaryNumbers(random, count), pass.moments);
        std::vector<float> squares = OrdinaryNumbers(random, count);
        for (float& square : squares) square *= square;
        auto second = Rounded(squares, pass.moments == DType::kBlocks8
                                           ? DType::kBlocks8Positive
                                           : pass.moments);
        std::vector<std::byte> low(static_cast<size_t>(2 * count));
        Write(on_device.grad, grad);
        Write(on_device.param, param);
        Write(on_device.exp_avg, first);
        Write(on_device.exp_avg_sq, second);
        Write(on_device.low, low);

        const OptimizerScalars scalars = ComputeOptimizerScalars(options, 2);
        constexpr float kFactor = 1.0f / 3;
        const PassBuffers plain = {grad.data(), param.data(), first.data(),
                                   second.data(), low.data()};
        OptimizerStep(BuffersOf(pass, plain, moments), count, scalars, kFactor);
        device().Optimize(*lane, BuffersOf(pass, on_device, moments),
                          Elements(count), scalars, kFactor);
        ASSERT_THAT(lane->Drain(), IsOk());
        const auto same = [&](const std::byte* at,
                              const std::vector<std::byte>& expected) {
          return SameBytes(
              Read(at, Bytes(static_cast<int64_t>(expected.size()))), expected);
        };
        const std::string what =
            std::string(OptimizerName(pass.kind)) + ", gradients in " +
            std::string(DTypeName(pass.grad)) + ", moments in " +
            std::string(DTypeName(pass.moments)) + ", " + std::to_string(count);
        ASSERT_TRUE(same(on_device.param, param)) << what;
        ASSERT_TRUE(same(on_device.exp_avg, first)) << what;
        ASSERT_TRUE(same(on_device.exp_avg_sq, second)) << what;
        ASSERT_TRUE(same(on_device.low, low)) << what;
        ASSERT_TRUE(same(on_device.grad, grad)) << what;
      }
    }
  }
}

}  // namespace castor
