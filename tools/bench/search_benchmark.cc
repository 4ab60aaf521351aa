// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The chunk-size search against the number of tensors, its certificate
// included, and the check of that certificate. The model is already read: what
// is measured begins with a list of parameters.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "chunk/search/layer_repeat.h"
#include "chunk/search/search_certificate.h"
#include "chunk/search/search_result.h"
#include "tools/bench/support/model_shapes.h"

namespace castor {
namespace {

constexpr int64_t kMi = int64_t{1} << 20;

using MakeParams = std::vector<ParamSpec> (*)();

std::vector<ParamSpec> Gpt2Xl() { return Gpt2Params({}, DType::kF32); }
std::vector<ParamSpec> Llama3With8B() { return LlamaParams({}, DType::kBF16); }
std::vector<ParamSpec> Llama3With70BParams() {
  return LlamaParams(Llama3With70B(), DType::kBF16);
}
std::vector<ParamSpec> DeepSeekV3() { return DeepSeekV3Params(DType::kBF16); }
// Random sizes up to kLargest Mi elements; the default range of chunk sizes is
// 16 Mi to 256 Mi elements of this dtype.
template <int64_t kCount, int64_t kLargest>
std::vector<ParamSpec> Random() {
  return RandomParams(kCount, kLargest * kMi, /*seed=*/1, DType::kBF16);
}

void BM_Search(benchmark::State& state, MakeParams make) {
  const std::vector<ParamSpec> params = make();
  size_t candidates = 0;
  size_t intervals = 0;
  for (auto _ : state) {
    const Result<SearchResult> result = SearchChunkSize(params, {});
    CASTOR_CHECK(result.ok());
    candidates = result->groups[0].candidates.size();
    intervals =
        std::get<SearchCertificate>(result->groups[0].modes[0].certificate)
            .intervals.size();
  }
  state.counters["tensors"] = static_cast<double>(params.size());
  state.counters["candidates"] = static_cast<double>(candidates);
  state.counters["intervals"] = static_cast<double>(intervals);
}

// One mode by itself, or all of them.
void BM_SearchModes(benchmark::State& state, MakeParams make,
                    std::vector<SearchMode> modes) {
  const std::vector<ParamSpec> params = make();
  SearchOptions options;
  options.modes = std::move(modes);
  size_t candidates = 0;
  for (auto _ : state) {
    const Result<SearchResult> result = SearchChunkSize(params, options);
    CASTOR_CHECK(result.ok());
    candidates = result->groups[0].candidates.size();
  }
  state.counters["tensors"] = static_cast<double>(params.size());
  state.counters["candidates"] = static_cast<double>(candidates);
}

// What the layer mode adds where nothing repeats.
void BM_FindLayerRepeat(benchmark::State& state, MakeParams make) {
  const std::vector<ParamSpec> params = make();
  const std::vector<Elements> sizes =
      GroupSizes(params, GroupParams(params)[0]).value();
  for (auto _ : state) {
    benchmark::DoNotOptimize(FindLayerRepeat(sizes));
  }
  state.counters["tensors"] = static_cast<double>(params.size());
}

// What every search begins with, whatever its modes.
void BM_GroupSizes(benchmark::State& state, MakeParams make) {
  const std::vector<ParamSpec> params = make();
  for (auto _ : state) {
    benchmark::DoNotOptimize(GroupSizes(params, GroupParams(params)[0]));
  }
  state.counters["tensors"] = static_cast<double>(params.size());
}

void BM_Verify(benchmark::State& state, MakeParams make) {
  const std::vector<ParamSpec> params = make();
  const std::vector<Elements> sizes =
      GroupSizes(params, GroupParams(params)[0]).value();
  const SearchResult found = SearchChunkSize(params, {}).value();
  const GroupSearchResult& group = found.groups[0];
  for (auto _ : state) {
    const Status status = VerifyCertificate(
        std::get<SearchCertificate>(group.modes[0].certificate), sizes, {},
        group.best.waste);
    CASTOR_CHECK(status.ok());
  }
  state.counters["tensors"] = static_cast<double>(params.size());
}

#define CASTOR_SEARCH_BENCHMARK(name, make) \
  BENCHMARK_CAPTURE(BM_Search, name, make)->Unit(benchmark::kMicrosecond)

#define CASTOR_MODES_BENCHMARK(name, make, ...)           \
  BENCHMARK_CAPTURE(BM_SearchModes, name, make,           \
                    std::vector<SearchMode>{__VA_ARGS__}) \
      ->Unit(benchmark::kMicrosecond)

CASTOR_SEARCH_BENCHMARK(Llama3_8B, &Llama3With8B);
CASTOR_SEARCH_BENCHMARK(Gpt2Xl, &Gpt2Xl);
CASTOR_SEARCH_BENCHMARK(Llama3_70B, &Llama3With70BParams);
CASTOR_SEARCH_BENCHMARK(DeepSeekV3, &DeepSeekV3);
CASTOR_MODES_BENCHMARK(Llama3_8B_Layer, &Llama3With8B, SearchMode::kLayer);
CASTOR_MODES_BENCHMARK(Gpt2Xl_Layer, &Gpt2Xl, SearchMode::kLayer);
CASTOR_MODES_BENCHMARK(Llama3_70B_Layer, &Llama3With70BParams,
                       SearchMode::kLayer);
CASTOR_MODES_BENCHMARK(DeepSeekV3_Layer, &DeepSeekV3, SearchMode::kLayer);
CASTOR_SEARCH_BENCHMARK(Random1000To32Mi, (&Random<1000, 32>));
CASTOR_SEARCH_BENCHMARK(Random45000To1Mi, (&Random<45000, 1>));
CASTOR_SEARCH_BENCHMARK(Random45000To8Mi, (&Random<45000, 8>));
CASTOR_SEARCH_BENCHMARK(Random45000To32Mi, (&Random<45000, 32>));
CASTOR_SEARCH_BENCHMARK(Random45000To256Mi, (&Random<45000, 256>));

BENCHMARK_CAPTURE(BM_FindLayerRepeat, Random1000To32Mi, (&Random<1000, 32>))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_FindLayerRepeat, Random45000To32Mi, (&Random<45000, 32>))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_FindLayerRepeat, DeepSeekV3, &DeepSeekV3)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_GroupSizes, Llama3_70B, &Llama3With70BParams)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_GroupSizes, DeepSeekV3, &DeepSeekV3)
    ->Unit(benchmark::kMicrosecond);

BENCHMARK_CAPTURE(BM_Verify, Gpt2Xl, &Gpt2Xl)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Verify, DeepSeekV3, &DeepSeekV3)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
