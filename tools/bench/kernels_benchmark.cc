// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The host kernels against memory bandwidth. AdamW counts 28 bytes for each
// parameter (bf16 gradient read; fp32 parameter and moments read and written;
// bf16 parameter written) and is compared with the STREAM triad, run in turns
// with it on as many threads: `of_triad` is the median of the ratios.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "chunk/base/dtype.h"
#include "offload/kernels/adamw.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/reduce.h"

namespace castor {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int64_t kMany = int64_t{1} << 23;  // well beyond any cache
constexpr int64_t kTriadBytes = 3 * sizeof(double);
constexpr int64_t kAdamWBytes = 28;

double TimeOnThreads(int threads, const std::function<void(int)>& work) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& other : others) other.join();
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Triad {
  std::vector<double> a = std::vector<double>(kMany / 2, 1);
  std::vector<double> b = a;
  std::vector<double> c = a;

  void Run() {
    double* const to = a.data();
    for (size_t i = 0; i < a.size(); ++i) to[i] = b[i] + 3 * c[i];
    benchmark::ClobberMemory();
  }
};

struct Parameters {
  std::vector<uint16_t> grad = std::vector<uint16_t>(kMany, 0x3C00);
  std::vector<uint16_t> low = grad;
  std::vector<float> param = std::vector<float>(kMany, 1);
  std::vector<float> exp_avg = param;
  std::vector<float> exp_avg_sq = param;

  void Run(const AdamWScalars& scalars) {
    AdamWStep({.grad = grad.data(),
               .grad_dtype = DType::kBF16,
               .param = param.data(),
               .exp_avg = exp_avg.data(),
               .exp_avg_sq = exp_avg_sq.data(),
               .low = low.data()},
              kMany, scalars, 1.0f);
  }
};

void BM_AdamWAgainstTriad(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  std::vector<Triad> triads(threads);
  std::vector<Parameters> parameters(threads);
  const AdamWScalars scalars = ComputeAdamWScalars({}, 10);
  std::vector<double> triad_rates, adamw_rates, ratios;
  for (auto _ : state) {
    const double triad_time =
        TimeOnThreads(threads, [&](int i) { triads[i].Run(); });
    const double adamw_time =
        TimeOnThreads(threads, [&](int i) { parameters[i].Run(scalars); });
    state.SetIterationTime(adamw_time);
    triad_rates.push_back(threads * (kMany / 2) * kTriadBytes / triad_time);
    adamw_rates.push_back(threads * kMany * kAdamWBytes / adamw_time);
    ratios.push_back(adamw_rates.back() / triad_rates.back());
  }
  state.counters["triad_B/s"] = Median(triad_rates);
  state.counters["adamw_B/s"] = Median(adamw_rates);
  state.counters["of_triad"] = Median(ratios);
}
BENCHMARK(BM_AdamWAgainstTriad)
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime()
    ->Iterations(15)
    ->Unit(benchmark::kMillisecond);

// What a call costs before its first element: the floating-point mode.
void BM_AdamWOfNothing(benchmark::State& state) {
  const AdamWScalars scalars = ComputeAdamWScalars({}, 10);
  for (auto _ : state) AdamWStep({}, 0, scalars, 1.0f);
}
BENCHMARK(BM_AdamWOfNothing);

void BM_AddSquares(benchmark::State& state) {
  const DType dtype = state.range(0) == 2 ? DType::kBF16 : DType::kF32;
  const std::vector<uint16_t> grad(kMany * state.range(0) / 2, 0x3C00);
  for (auto _ : state) {
    ExactSum sum;
    AddSquares(grad.data(), dtype, kMany, &sum);
    benchmark::DoNotOptimize(sum.Total());
  }
  state.SetBytesProcessed(state.iterations() * kMany * state.range(0));
}
BENCHMARK(BM_AddSquares)
    ->ArgName("element_bytes")
    ->Arg(2)
    ->Arg(4)
    ->Unit(benchmark::kMillisecond);

void BM_SumInOrder(benchmark::State& state) {
  const bool is_low = state.range(0) == 2;
  const int64_t sources = state.range(1);
  const int64_t count = kMany / sources;
  const std::vector<std::vector<float>> parts(
      sources, std::vector<float>(is_low ? count / 2 : count, 1));
  std::vector<const void*> pointers;
  for (const std::vector<float>& part : parts) pointers.push_back(part.data());
  std::vector<float> to(count);
  for (auto _ : state) {
    SumInOrder(pointers, is_low ? DType::kBF16 : DType::kF32, count, to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * (sources + 1) * count *
                          state.range(0));
}
BENCHMARK(BM_SumInOrder)
    ->ArgNames({"element_bytes", "sources"})
    ->ArgsProduct({{2, 4}, {2, 8, 64}})
    ->Unit(benchmark::kMillisecond);

void BM_ConvertFromFloat(benchmark::State& state) {
  const std::vector<float> from(kMany, 1);
  std::vector<uint16_t> to(kMany);
  for (auto _ : state) {
    ConvertFromFloat(from.data(), kMany, DType::kBF16, to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kMany * 6);
}
BENCHMARK(BM_ConvertFromFloat)->Unit(benchmark::kMillisecond);

void BM_ConvertToFloat(benchmark::State& state) {
  const std::vector<uint16_t> from(kMany, 0x3C00);
  std::vector<float> to(kMany);
  for (auto _ : state) {
    ConvertToFloat(from.data(), DType::kBF16, kMany, to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kMany * 6);
}
BENCHMARK(BM_ConvertToFloat)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
