// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "offload/kernels/optimizer.h"
#include "offload/memory/slab.h"
#include "placement/memory_passes.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

// As STREAM counts: two doubles read and one written.
constexpr int64_t kTriadBytes = 3 * sizeof(double);
// What an element of the optimizer's buffers takes: gradient and copy in bf16,
// parameter and two moments in fp32.
constexpr int64_t kAdamBytesHeld = 2 * 2 + 3 * 4;
// Arrays begin at multiples of this many elements, so that none shares a cache
// line with another.
constexpr int64_t kAligned = 64;

// A byte that makes a small positive number of every type.
constexpr int kByte = 0x3C;

double Seconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

TimedRate RateOfTimes(const std::vector<double>& seconds, double bytes) {
  return {.bytes_per_second = bytes / MedianOf(seconds),
          .spread = SpreadOf(seconds),
          .samples = static_cast<int>(seconds.size())};
}

class Triad {
 public:
  Triad(std::byte* memory, Bytes size)
      : count_(size.count() / kTriadBytes / kAligned * kAligned),
        a_(reinterpret_cast<double*>(memory)),
        b_(a_ + count_),
        c_(b_ + count_) {}

  double bytes() const { return static_cast<double>(count_ * kTriadBytes); }

  void Run(WorkerPool& pool, bool streamed) const {
    pool.ParallelFor(count_, a_, [&](int64_t begin, int64_t end) {
      streamed ? Streamed(begin, end) : Plain(begin, end);
    });
  }

  static bool has_streamed() {
#if defined(__SSE2__)
    return true;
#else
    return false;
#endif
  }

 private:
  void Plain(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) a_[i] = b_[i] + 3 * c_[i];
    // The compiler must not think that nobody reads them.
    asm volatile("" : : "r"(a_) : "memory");
  }

  void Streamed(int64_t begin, int64_t end) const {
#if defined(__SSE2__)
    // Ranges begin and end at even elements.
    const __m128d three = _mm_set1_pd(3);
    for (int64_t i = begin; i < end; i += 2) {
      const __m128d scaled = _mm_mul_pd(three, _mm_load_pd(c_ + i));
      _mm_stream_pd(a_ + i, _mm_add_pd(_mm_load_pd(b_ + i), scaled));
    }
    _mm_sfence();
#else
    Plain(begin, end);
#endif
  }

  const int64_t count_;
  double* const a_;
  double* const b_;
  double* const c_;
};

class Adam {
 public:
  Adam(std::byte* memory, Bytes size)
      : count_(size.count() / kAdamBytesHeld / kAligned * kAligned),
        scalars_(ComputeOptimizerScalars({}, /*step=*/10)) {
    auto* const full = reinterpret_cast<float*>(memory);
    buffers_.param = full;
    buffers_.exp_avg = full + count_;
    buffers_.exp_avg_sq = full + 2 * count_;
    auto* const low = reinterpret_cast<uint16_t*>(full + 3 * count_);
    buffers_.grad = low;
    buffers_.grad_dtype = DType::kBF16;
    buffers_.low = low + count_;
    buffers_.low_dtype = DType::kBF16;
  }

  double bytes() const {
    return static_cast<double>(
        UpdateBytes(kProbedUpdate, Elements(count_)).count());
  }

  void Run(WorkerPool& pool) const {
    pool.ParallelFor(count_, buffers_.param, [&](int64_t begin, int64_t end) {
      OptimizerStep(SkipElements(buffers_, begin), end - begin, scalars_, 1);
    });
  }

 private:
  const int64_t count_;
  const OptimizerScalars scalars_;
  OptimizerBuffers buffers_;
};

}  // namespace

Result<MemoryTimes> TimeMemory(WorkerPool& pool, Bytes buffer,
                               const RoundOptions& options) {
  CASTOR_CHECK_GE(buffer, MiB(1));
  CASTOR_ASSIGN_OR_RETURN(const Slab slab,
                          MakeHostSlab(buffer, {.lock = false}));
  std::memset(slab.data(), kByte, static_cast<size_t>(buffer.count()));
  MemoryTimes times;

  const Triad triad(slab.data(), buffer);
  std::vector<double> plain, streamed;
  const size_t ways = Triad::has_streamed() ? 2 : 1;
  CASTOR_RETURN_IF_ERROR(RunRounds(ways, options, [&](size_t way) {
    const auto begin = std::chrono::steady_clock::now();
    triad.Run(pool, /*streamed=*/way == 1);
    (way == 1 ? streamed : plain).push_back(Seconds(begin));
    return OkStatus();
  }));
  times.triad = RateOfTimes(plain, triad.bytes());
  if (!streamed.empty()) {
    const TimedRate other = RateOfTimes(streamed, triad.bytes());
    if (other.bytes_per_second > times.triad.bytes_per_second) {
      times.triad = other;
    }
  }

  std::memset(slab.data(), kByte, static_cast<size_t>(buffer.count()));
  const Adam adam(slab.data(), buffer);
  std::vector<double> steps;
  CASTOR_RETURN_IF_ERROR(RunRounds(1, options, [&](size_t) {
    const auto begin = std::chrono::steady_clock::now();
    adam.Run(pool);
    steps.push_back(Seconds(begin));
    return OkStatus();
  }));
  times.adam = RateOfTimes(steps, adam.bytes());
  return times;
}

}  // namespace castor
