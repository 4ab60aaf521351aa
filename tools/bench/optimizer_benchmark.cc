// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The optimizers on the host against memory bandwidth, through the worker pool.
// Counted are the bytes that a pass must read and write: for AdamW with bf16
// gradients, fp32 states and a bf16 copy 28 per parameter. Each pass is timed
// in turns with the STREAM triad over as many bytes on as many threads, and the
// ratios' median is printed:
//
//   of_triad     against the triad as STREAM has it, whose plain stores read
//                what they overwrite, which nobody counts
//   of_streamed  against a triad whose stores pass the caches by: the more
//                that memory can give
//
// `optimizer_benchmark --turns PASS THREADS` runs one pass for each line of its
// input, and prints each pass's seconds: optimizer_comparison.py takes turns
// with other optimizers that way.

#include <benchmark/benchmark.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "chunk/base/dtype.h"
#include "offload/kernels/optimizer.h"
#include "offload/worker_pool.h"
#include "tools/measure/samples.h"

namespace castor {
namespace {

constexpr int64_t kMany = int64_t{1} << 24;    // elements, beyond any cache
constexpr int64_t kTriads = int64_t{1} << 24;  // of doubles
constexpr int64_t kTriadBytes = 3 * sizeof(double);

template <typename Work>
double Time(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

class Triad {
 public:
  // Bytes per second, as STREAM counts them.
  double Rate(WorkerPool& pool, bool streamed) {
    const double seconds = Time([&] {
      pool.ParallelFor(kTriads, a_.data(), [&](int64_t begin, int64_t end) {
        streamed ? RunStreamed(begin, end) : Run(begin, end);
      });
    });
    return kTriads * kTriadBytes / seconds;
  }

 private:
  void Run(int64_t begin, int64_t end) {
    double* const to = a_.data();
    const double* const b = b_.data();
    const double* const c = c_.data();
    for (int64_t i = begin; i < end; ++i) to[i] = b[i] + 3 * c[i];
    benchmark::ClobberMemory();
  }
  void RunStreamed(int64_t begin, int64_t end) {
#if defined(__SSE2__)
    double* const to = a_.data();
    const double* const b = b_.data();
    const double* const c = c_.data();
    const __m128d three = _mm_set1_pd(3);
    for (int64_t i = begin; i < end; i += 2) {
      _mm_stream_pd(to + i, _mm_add_pd(_mm_loadu_pd(b + i),
                                       _mm_mul_pd(three, _mm_loadu_pd(c + i))));
    }
    _mm_sfence();
#else
    Run(begin, end);
#endif
  }

  std::vector<double> a_ = std::vector<double>(kTriads, 1);
  std::vector<double> b_ = a_;
  std::vector<double> c_ = a_;
};

struct Pass {
  const char* name;
  OptimizerOptions options;
  DType grad;
  DType low;           // kF32: none
  bool aside = false;  // new states go to places of their own
};

OptimizerOptions LowMoments(OptimizerOptions options,
                            DType dtype = DType::kBF16) {
  options.moment_dtype = dtype;
  return options;
}

OptimizerOptions Momentum() {
  OptimizerOptions options = DefaultOptimizerOptions(OptimizerKind::kSgd);
  options.momentum = 0.9;
  return options;
}

const Pass kPasses[] = {
    {"adamw", {}, DType::kBF16, DType::kBF16},
    {"adamw/fp16", {}, DType::kF16, DType::kF16},
    {"adamw/fp32", {}, DType::kF32, DType::kF32},
    {"adamw/aside", {}, DType::kBF16, DType::kBF16, true},
    {"adamw/fp32/aside", {}, DType::kF32, DType::kF32, true},
    {"adamw/bf16_moments", LowMoments({}), DType::kBF16, DType::kBF16},
    {"adamw/8bit_moments", LowMoments({}, DType::kBlocks8), DType::kBF16,
     DType::kBF16},
    {"sgd", DefaultOptimizerOptions(OptimizerKind::kSgd), DType::kBF16,
     DType::kBF16},
    {"sgd/momentum", Momentum(), DType::kBF16, DType::kBF16},
    {"lion", DefaultOptimizerOptions(OptimizerKind::kLion), DType::kBF16,
     DType::kBF16},
};

// What a pass reads and writes.
Bytes BytesOfPass(const Pass& pass, Elements count) {
  const Bytes low =
      pass.low == DType::kF32 ? Bytes(0) : BytesOf(count, pass.low);
  return BytesOf(count, pass.grad) + BytesOf(count, DType::kF32) * 2 +
         BytesOf(count, pass.options.moment_dtype) *
             (2 * MomentsOf(pass.options)) +
         low;
}

class Parameters {
 public:
  OptimizerBuffers Buffers(const Pass& pass) {
    OptimizerBuffers buffers;
    buffers.grad = grad_.get();
    buffers.grad_dtype = pass.grad;
    buffers.param = param_.get();
    buffers.exp_avg = exp_avg_.get();
    buffers.exp_avg_sq = exp_avg_sq_.get();
    buffers.moment_dtype = pass.options.moment_dtype;
    buffers.rounding = MakeMomentRounding(pass.options, 0, 10, 0);
    if (pass.aside) {
      buffers.new_param = new_param_.get();
      buffers.new_exp_avg = new_exp_avg_.get();
      buffers.new_exp_avg_sq = new_exp_avg_sq_.get();
    }
    if (pass.low != DType::kF32) {
      buffers.low = low_.get();
      buffers.low_dtype = pass.low;
    }
    return buffers;
  }

 private:
  // As chunks are: at the start of a page.
  template <typename T>
  static T* Many(T value) {
    constexpr std::align_val_t kPage{4096};
    T* const many = static_cast<T*>(operator new(kMany * sizeof(T), kPage));
    std::fill_n(many, kMany, value);
    return many;
  }
  struct Free {
    template <typename T>
    void operator()(T* many) const {
      operator delete (many, std::align_val_t{4096});
    }
  };

  std::unique_ptr<float, Free> grad_{Many(0.01f)};
  std::unique_ptr<float, Free> param_{Many(1.0f)};
  std::unique_ptr<float, Free> exp_avg_{Many(0.01f)};
  std::unique_ptr<float, Free> exp_avg_sq_{Many(0.01f)};
  std::unique_ptr<float, Free> new_param_{Many(0.0f)};
  std::unique_ptr<float, Free> new_exp_avg_{Many(0.0f)};
  std::unique_ptr<float, Free> new_exp_avg_sq_{Many(0.0f)};
  std::unique_ptr<uint16_t, Free> low_{Many(uint16_t{0})};
};

// Seconds.
double Step(WorkerPool& pool, const OptimizerBuffers& buffers,
            const OptimizerScalars& scalars) {
  return Time([&] {
    pool.ParallelFor(kMany, buffers.param, [&](int64_t begin, int64_t end) {
      OptimizerStep(SkipElements(buffers, begin), end - begin, scalars, 1);
    });
  });
}

void BM_Optimizer(benchmark::State& state, const Pass& pass) {
  WorkerPool pool({.threads = static_cast<int>(state.range(0))});
  Triad triad;
  Parameters parameters;
  const OptimizerBuffers buffers = parameters.Buffers(pass);
  const OptimizerScalars scalars = ComputeOptimizerScalars(pass.options, 10);
  const auto bytes =
      static_cast<double>(BytesOfPass(pass, Elements(kMany)).count());
  std::vector<double> rates, of_triad, of_streamed;
  for (auto _ : state) {
    const double plain = triad.Rate(pool, /*streamed=*/false);
    const double streamed = triad.Rate(pool, /*streamed=*/true);
    const double seconds = Step(pool, buffers, scalars);
    state.SetIterationTime(seconds);
    rates.push_back(bytes / seconds);
    of_triad.push_back(rates.back() / plain);
    of_streamed.push_back(rates.back() / streamed);
  }
  state.counters["B/s"] = MedianOf(rates);
  state.counters["of_triad"] = MedianOf(of_triad);
  state.counters["of_streamed"] = MedianOf(of_streamed);
}

// What a call costs before its first element: the floating-point mode.
void BM_OptimizerOfNothing(benchmark::State& state) {
  const OptimizerScalars scalars = ComputeOptimizerScalars({}, 10);
  for (auto _ : state) OptimizerStep({}, 0, scalars, 1.0f);
}
BENCHMARK(BM_OptimizerOfNothing);

int TakeTurns(const char* name, int threads) {
  for (const Pass& pass : kPasses) {
    if (std::strcmp(pass.name, name) != 0) continue;
    WorkerPool pool({.threads = threads});
    Parameters parameters;
    const OptimizerBuffers buffers = parameters.Buffers(pass);
    const OptimizerScalars scalars = ComputeOptimizerScalars(pass.options, 10);
    for (int byte = std::getchar(); byte != EOF; byte = std::getchar()) {
      const double seconds = Step(pool, buffers, scalars);
      std::printf("%.9f\n", seconds);
      std::fflush(stdout);
    }
    return 0;
  }
  std::fprintf(stderr, "no pass is called \"%s\"\n", name);
  return 2;
}

}  // namespace
}  // namespace castor

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--turns") == 0) {
    return castor::TakeTurns(argv[2], std::atoi(argv[3]));
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const int all = castor::WorkerPool::Process().threads();
  for (const castor::Pass& pass : castor::kPasses) {
    auto* const run = benchmark::RegisterBenchmark(
        pass.name, [&pass](benchmark::State& state) {
          castor::BM_Optimizer(state, pass);
        });
    run->ArgName("threads")->Arg(1)->UseManualTime()->Iterations(15)->Unit(
        benchmark::kMillisecond);
    if (all > 1) run->Arg(all);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
