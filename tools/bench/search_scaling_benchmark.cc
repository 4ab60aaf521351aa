// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Time and memory of a whole search, every mode and every certificate in it,
// over the number of tensors. The model is already read; memory is what the
// search takes beyond that, at its highest, as the heap hands it out.

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "chunk/search_result.h"
#include "tools/bench/model_shapes.h"
#include "tools/models/model_list.h"
#include "tools/zoo/zoo.h"

namespace {

// One thread allocates.
int64_t heap_bytes = 0;
int64_t heap_peak = 0;

}  // namespace

void* operator new(size_t size) {
  void* const memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  heap_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  heap_peak = std::max(heap_peak, heap_bytes);
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  heap_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace castor {
namespace {

constexpr int64_t kMi = int64_t{1} << 20;

using MakeParams = std::vector<ParamSpec> (*)();

std::vector<ParamSpec> FromZoo(std::string_view name) {
  for (const ZooModel& model : ZooModels()) {
    if (model.name == name) {
      return ZooParams(model, ExpertLayout::kPerExpert).value();
    }
  }
  CASTOR_CHECK(false);
  return {};
}
std::vector<ParamSpec> Llama2With7B() { return FromZoo("Llama-2-7B"); }
std::vector<ParamSpec> Llama2With70B() { return FromZoo("Llama-2-70B"); }
std::vector<ParamSpec> Qwen3With30B() { return FromZoo("Qwen3-30B-A3B"); }
std::vector<ParamSpec> DeepSeekV3() { return DeepSeekV3Params(DType::kBF16); }
template <int64_t kCount>
std::vector<ParamSpec> Random() {
  return RandomParams(kCount, 32 * kMi, /*seed=*/1, DType::kBF16);
}

void BM_SearchAllModes(benchmark::State& state, MakeParams make) {
  const std::vector<ParamSpec> params = make();
  SearchOptions options;
  options.modes = {SearchMode::kUniform, SearchMode::kLayer};
  const int64_t before = heap_bytes;
  heap_peak = heap_bytes;
  CASTOR_CHECK(SearchChunkSize(params, options).ok());
  state.counters["peak_KiB"] = static_cast<double>(heap_peak - before) / 1024;
  for (auto _ : state) {
    benchmark::DoNotOptimize(SearchChunkSize(params, options));
  }
  state.counters["tensors"] = static_cast<double>(params.size());
}

#define CASTOR_SCALING_BENCHMARK(name, make)       \
  BENCHMARK_CAPTURE(BM_SearchAllModes, name, make) \
      ->Unit(benchmark::kMillisecond)

CASTOR_SCALING_BENCHMARK(Llama2_7B, &Llama2With7B);
CASTOR_SCALING_BENCHMARK(Llama2_70B, &Llama2With70B);
CASTOR_SCALING_BENCHMARK(Qwen3_30B_PerExpert, &Qwen3With30B);
CASTOR_SCALING_BENCHMARK(DeepSeekV3_PerExpert, &DeepSeekV3);
CASTOR_SCALING_BENCHMARK(Random1000, &Random<1000>);
CASTOR_SCALING_BENCHMARK(Random45000, &Random<45000>);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
