// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/class_search.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <variant>
#include <vector>

#include "chunk/chunk_packer.h"
#include "chunk/classes_certificate.h"
#include "chunk/packing_sweep.h"
#include "chunk/param_spec.h"
#include "chunk/uniform_search.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tools/bench/model_shapes.h"

namespace castor {
namespace {

ModeSearchInput InputOf(const std::vector<Elements>& sizes, int64_t max_size,
                        int64_t max_classes, const PackOptions& pack = {}) {
  ModeSearchInput input;
  input.sizes = sizes;
  for (const Elements size : sizes) input.payload += size;
  input.dtype = DType::kBF16;
  input.min_size = ChunkQuantum(pack.world);
  input.max_size = Elements(max_size);
  input.pack = pack;
  input.max_classes = max_classes;
  return input;
}

const ClassesCertificate& ProofOf(const ModeSearch& search) {
  return std::get<ClassesCertificate>(search.result.certificate);
}

Status Verify(const ModeSearch& search, const ModeSearchInput& input) {
  return VerifyClassesCertificate(ProofOf(search), input.sizes, input.pack,
                                  search.result.best.waste);
}

// That a candidate costs what packing every class by itself costs.
void ExpectCostsWhatPackingDoes(const ChunkSizeCandidate& candidate,
                                const std::vector<Elements>& sizes,
                                const ModeSearchInput& input) {
  EXPECT_EQ(candidate.mode, SearchMode::kClasses);
  ASSERT_FALSE(candidate.classes.empty());
  int64_t above = 0;
  int64_t chunks = 0;
  int64_t allocated = 0;
  std::set<int64_t> oversize;
  for (size_t c = 0; c < candidate.classes.size(); ++c) {
    const int64_t size = candidate.classes[c].chunk_size.count();
    EXPECT_GT(size, above);
    EXPECT_LE(size, input.max_size.count());
    int64_t ordinary = 0;
    for (const NaiveChunk& chunk :
         NaivePacking(NaiveClassMembers(sizes, above, size,
                                        c + 1 == candidate.classes.size()),
                      size, input.pack.world, input.pack.align.count())) {
      ++chunks;
      allocated += chunk.size;
      if (chunk.oversize) {
        oversize.insert(chunk.size);
        // What is within max is in a class.
        EXPECT_GT(chunk.used, input.max_size.count());
      } else {
        ++ordinary;
      }
    }
    EXPECT_EQ(candidate.classes[c].chunks, ordinary);
    above = size;
  }
  int64_t gathered = input.gathered_slots * above;
  for (const int64_t size : oversize) gathered += size;
  EXPECT_EQ(candidate.chunk_size.count(), above);
  EXPECT_EQ(candidate.chunks, chunks);
  EXPECT_EQ(candidate.allocated.count(), allocated);
  EXPECT_EQ(candidate.waste, candidate.allocated - input.payload);
  EXPECT_EQ(candidate.gathered_bytes, BytesOf(Elements(gathered), input.dtype));
}

void ExpectEqualsBruteForce(const std::vector<Elements>& sizes,
                            const ModeSearchInput& input) {
  const ModeSearch search = SearchClasses(input);
  NaiveClassSearch naive(sizes, input.max_size.count(), input.pack.world,
                         input.pack.align.count());
  const NaiveClasses best = naive.Best(input.max_classes);
  EXPECT_EQ(search.result.best.allocated.count(), best.allocated);
  EXPECT_EQ(static_cast<int64_t>(search.result.best.classes.size()),
            best.classes);
  EXPECT_TRUE(search.result.optimal);
  EXPECT_EQ(search.result.lower_bound_waste, search.result.best.waste);
  EXPECT_EQ(search.result.mode, SearchMode::kClasses);
  EXPECT_THAT(Verify(search, input), IsOk());
  bool best_listed = false;
  for (const ChunkSizeCandidate& candidate : search.candidates) {
    ExpectCostsWhatPackingDoes(candidate, sizes, input);
    EXPECT_LE(static_cast<int64_t>(candidate.classes.size()),
              input.max_classes);
    best_listed |= candidate.waste == search.result.best.waste &&
                   candidate.chunk_size == search.result.best.chunk_size;
  }
  EXPECT_TRUE(best_listed);
  ExpectCostsWhatPackingDoes(search.result.best, sizes, input);
}

TEST(ClassSearchTest, EqualsBruteForceOnRandomLists) {
  std::mt19937_64 random(TestSeed(21));
  const int worlds[] = {1, 3, 8};
  for (int round = 0; round < TestRounds(2500); ++round) {
    const PackOptions pack = {
        .world = worlds[random() % 3],
        .align = Elements(64 * (1 + static_cast<int64_t>(random() % 3)))};
    const int64_t quantum = 128 * pack.world;
    const int64_t steps = 1 + static_cast<int64_t>(random() % 12);
    const int64_t classes = 1 + static_cast<int64_t>(random() % 4);
    // Now and then none, or several, are larger than max.
    const std::vector<Elements> sizes =
        RandomSizes(random, 30, quantum,
                    quantum * (1 + static_cast<int64_t>(random() % 14)));
    SCOPED_TRACE(testing::Message()
                 << "round " << round << " world " << pack.world << " align "
                 << pack.align << " max " << steps << " Q, K " << classes);
    ExpectEqualsBruteForce(sizes,
                           InputOf(sizes, steps * quantum, classes, pack));
    if (HasFailure()) return;
  }
}

// Many parameters of few sizes, as models have them: long runs, several counts.
TEST(ClassSearchTest, EqualsBruteForceOnRepeatedSizes) {
  std::mt19937_64 random(TestSeed(22));
  for (int round = 0; round < TestRounds(150); ++round) {
    std::vector<Elements> kinds;
    for (uint64_t kind = 0; kind < 1 + random() % 5; ++kind) {
      kinds.emplace_back(1 + static_cast<int64_t>(random() % 2500));
    }
    std::vector<Elements> sizes;
    for (uint64_t run = 0; run < random() % 40; ++run) {
      const Elements size = kinds[random() % kinds.size()];
      for (uint64_t i = 0; i < 1 + random() % 8; ++i) sizes.push_back(size);
    }
    SCOPED_TRACE(testing::Message() << "round " << round);
    ExpectEqualsBruteForce(sizes, InputOf(sizes, 2304, 3));
    if (HasFailure()) return;
  }
}

TEST(ClassSearchTest, EqualsBruteForceOnSpecialLists) {
  const std::vector<std::vector<Elements>> lists = {
      {},
      {Elements(0)},
      {Elements(0), Elements(0), Elements(500)},
      {Elements(1'000'000)},
      {Elements(1'000'000), Elements(0), Elements(1'000'001)},
      std::vector<Elements>(300, Elements(1)),
      std::vector<Elements>(300, Elements(129)),
      {Elements(1280), Elements(1281), Elements(1279)},
  };
  for (const std::vector<Elements>& sizes : lists) {
    for (int64_t classes = 1; classes <= 4; ++classes) {
      SCOPED_TRACE(testing::Message()
                   << sizes.size() << " sizes, K " << classes);
      ExpectEqualsBruteForce(sizes, InputOf(sizes, 1280, classes));
    }
  }
}

TEST(ClassSearchTest, WhereNothingIsWithinMaxTheLeastSizeStandsForNoChunk) {
  const std::vector<Elements> sizes = {Elements(5000)};
  const ModeSearch search = SearchClasses(InputOf(sizes, 1280, 3));
  ASSERT_EQ(search.result.best.classes.size(), 1u);
  EXPECT_EQ(search.result.best.chunk_size, Elements(128));
  EXPECT_EQ(search.result.best.classes[0].chunks, 0);
  EXPECT_EQ(search.result.best.oversize_chunks, 1);
}

TEST(ClassSearchTest, OneClassIsUniformOverTheSizesThatHoldAllWithinMax) {
  std::mt19937_64 random(TestSeed(23));
  for (int round = 0; round < TestRounds(500); ++round) {
    std::vector<Elements> sizes = RandomSizes(random, 200, 128, 20'000);
    sizes.emplace_back(9000);
    ModeSearchInput input = InputOf(sizes, 128 * 400, 1);
    const ModeSearch classes = SearchClasses(input);
    for (const Elements size : sizes) {
      if (size <= input.max_size) {
        input.min_size = std::max(input.min_size, RoundUp(size, Elements(128)));
      }
    }
    const ModeSearch uniform = SearchUniform(input);
    ASSERT_EQ(classes.result.best.chunk_size, uniform.result.best.chunk_size);
    ASSERT_EQ(classes.result.best.waste, uniform.result.best.waste);
    ASSERT_EQ(classes.result.best.chunks, uniform.result.best.chunks);
  }
}

// Ended early, or with few thresholds tried, the answer is a choice that costs
// what it says, and the bound holds and can be verified.
TEST(ClassSearchTest, WithinLimitsTheAnswerAndItsBoundAreTrue) {
  std::mt19937_64 random(TestSeed(24));
  int proven = 0;
  int open = 0;
  for (int round = 0; round < TestRounds(800); ++round) {
    const std::vector<Elements> sizes = RandomSizes(random, 40, 128, 128 * 14);
    const ModeSearchInput input =
        InputOf(sizes, 128 * 15, 1 + static_cast<int64_t>(random() % 4));
    ClassSearchLimits limits;
    if (random() % 2 == 0) {
      limits.max_thresholds = 1 + static_cast<int>(random() % 8);
      limits.tried_thresholds = 1 + static_cast<int>(random() % 8);
    } else {
      limits.max_steps = static_cast<int64_t>(random() % 1000);
    }
    SCOPED_TRACE(testing::Message()
                 << "round " << round << " K " << input.max_classes
                 << " thresholds " << limits.max_thresholds << " steps "
                 << limits.max_steps);
    const ModeSearch search = SearchClasses(input, limits);
    NaiveClassSearch naive(sizes, input.max_size.count(), 1, 64);
    const Elements least =
        Elements(naive.Best(input.max_classes).allocated) - input.payload;
    EXPECT_GE(search.result.best.waste, least);
    EXPECT_LE(search.result.lower_bound_waste, least);
    EXPECT_EQ(search.result.optimal,
              search.result.lower_bound_waste == search.result.best.waste);
    ExpectCostsWhatPackingDoes(search.result.best, sizes, input);
    EXPECT_THAT(Verify(search, input), IsOk());
    ++(search.result.optimal ? proven : open);
    if (HasFailure()) return;
  }
  EXPECT_GT(proven, 0);
  EXPECT_GT(open, 0);
}

// The same optimum without a bound anywhere: every pair of thresholds swept
// over all sizes it allows, and every path.
Elements ExhaustiveLeastWaste(const ModeSearchInput& input) {
  const Elements quantum = ChunkQuantum(input.pack.world);
  std::set<Elements> distinct = {Elements(0)};
  Elements oversize;
  for (const Elements size : input.sizes) {
    if (size <= input.max_size) {
      distinct.insert(RoundUp(size, quantum));
    } else {
      oversize += RoundUp(size, quantum) - size;
    }
  }
  const std::vector<Elements> thresholds(distinct.begin(), distinct.end());
  const size_t last = thresholds.size() - 1;
  const Elements far(std::numeric_limits<int64_t>::max() / 4);
  std::vector<Elements> cost(thresholds.size(), far);
  cost[0] = Elements(0);
  std::vector<std::vector<Elements>> waste(thresholds.size());
  for (size_t k = 1; k <= last; ++k) {
    const Elements to =
        k == last ? input.max_size : thresholds[k + 1] - quantum;
    for (size_t i = 0; i < k; ++i) {
      std::vector<Elements> own;
      Elements payload;
      for (const Elements size : input.sizes) {
        const bool inside = size > thresholds[i] && size <= thresholds[k];
        if (inside) payload += size;
        if (inside || (k == last && size > input.max_size)) own.push_back(size);
      }
      Elements least = far;
      for (const SizePiece& piece :
           SweepChunkSizes(own, thresholds[k], to, input.pack)) {
        least = std::min(least, piece.from * piece.chunks - payload);
      }
      waste[k].push_back(least);
    }
  }
  for (int64_t n = 0; n < input.max_classes; ++n) {
    std::vector<Elements> next = cost;
    for (size_t k = 1; k <= last; ++k) {
      for (size_t i = 0; i < k; ++i) {
        next[k] = std::min(next[k], cost[i] + waste[k][i]);
      }
    }
    cost = next;
  }
  return cost[last] + oversize;
}

struct Shape {
  const char* name;
  std::vector<ParamSpec> params;
  bool dense;  // of 1B to 70B parameters
};

std::vector<Shape> RealShapes() {
  const auto gpt2 = [](int64_t layers, int64_t hidden) {
    return Gpt2Params({.layers = layers, .hidden = hidden}, DType::kBF16);
  };
  const auto llama = [](int64_t layers, int64_t hidden, int64_t kv, int64_t mlp,
                        int64_t vocabulary) {
    return LlamaParams({.layers = layers,
                        .hidden = hidden,
                        .kv_hidden = kv,
                        .mlp = mlp,
                        .vocabulary = vocabulary},
                       DType::kBF16);
  };
  return {
      {"GPT-2", gpt2(12, 768), false},
      {"GPT-2 medium", gpt2(24, 1024), false},
      {"GPT-2 large", gpt2(36, 1280), false},
      {"GPT-2 XL", gpt2(48, 1600), true},
      {"GPT-3 13B", gpt2(40, 5140), true},
      {"TinyLlama 1.1B", llama(22, 2048, 256, 5632, 32000), true},
      {"Llama-3.2-3B", llama(28, 3072, 1024, 8192, 128256), true},
      {"Llama-2-7B", llama(32, 4096, 4096, 11008, 32000), true},
      {"Mistral-7B", llama(32, 4096, 1024, 14336, 32000), true},
      {"Llama-3-8B", LlamaParams({}, DType::kBF16), true},
      {"Llama-2-13B", llama(40, 5120, 5120, 13824, 32000), true},
      {"CodeLlama-34B", llama(48, 8192, 1024, 22016, 32000), true},
      {"Llama-2-70B", llama(80, 8192, 1024, 28672, 32000), true},
      {"Llama-3-70B", LlamaParams(Llama3With70B(), DType::kBF16), true},
  };
}

TEST(ClassSearchTest, EqualsAnExhaustiveEvaluationOnRealShapes) {
  for (const Shape& shape : RealShapes()) {
    const std::vector<Elements> sizes =
        GroupSizes(shape.params, GroupParams(shape.params)[0]).value();
    for (const int world : {1, 8}) {
      for (const int64_t classes : {2, 3}) {
        SCOPED_TRACE(testing::Message() << shape.name << " on " << world
                                        << " ranks, K " << classes);
        const ModeSearchInput input =
            InputOf(sizes, int64_t{1} << 28, classes, {.world = world});
        const ModeSearch search = SearchClasses(input);
        EXPECT_EQ(search.result.best.waste, ExhaustiveLeastWaste(input));
        EXPECT_TRUE(search.result.optimal);
        EXPECT_THAT(Verify(search, input), IsOk());
      }
    }
  }
}

TEST(ClassSearchTest, ThreeClassesWasteAtMostThreePerMilleOfDenseModels) {
  for (const Shape& shape : RealShapes()) {
    if (!shape.dense) continue;
    const std::vector<Elements> sizes =
        GroupSizes(shape.params, GroupParams(shape.params)[0]).value();
    const ModeSearch search =
        SearchClasses(InputOf(sizes, int64_t{1} << 28, 3, {.world = 8}));
    EXPECT_LE(search.result.best.waste_fraction, 0.003) << shape.name;
  }
}

TEST(ClassSearchTest, ProvesTheOptimumOfFortyFiveThousandTensors) {
  const std::vector<ParamSpec> params = DeepSeekV3Params(DType::kBF16);
  const std::vector<Elements> sizes =
      GroupSizes(params, GroupParams(params)[0]).value();
  const ModeSearchInput input =
      InputOf(sizes, int64_t{1} << 28, 3, {.world = 8});
  const ModeSearch search = SearchClasses(input);
  EXPECT_TRUE(search.result.optimal);
  EXPECT_THAT(Verify(search, input), IsOk());
  // Dropping a class can only cost.
  EXPECT_LE(search.result.best.waste,
            SearchClasses(InputOf(sizes, int64_t{1} << 28, 2, {.world = 8}))
                .result.best.waste);
}

TEST(ClassSearchTest, ManyDistinctSizesHaveAnAnswerWithATrueBound) {
  const std::vector<ParamSpec> params =
      RandomParams(5000, 1 << 22, /*seed=*/3, DType::kBF16);
  const std::vector<Elements> sizes =
      GroupSizes(params, GroupParams(params)[0]).value();
  const ModeSearchInput one = InputOf(sizes, int64_t{1} << 26, 1);
  const ModeSearchInput three = InputOf(sizes, int64_t{1} << 26, 3);
  const ModeSearch uniform = SearchClasses(one);
  const ModeSearch search = SearchClasses(three);
  EXPECT_TRUE(uniform.result.optimal);
  EXPECT_FALSE(search.result.optimal);
  EXPECT_LE(search.result.best.waste, uniform.result.best.waste);
  EXPECT_THAT(Verify(uniform, one), IsOk());
  EXPECT_THAT(Verify(search, three), IsOk());
  ExpectCostsWhatPackingDoes(search.result.best, sizes, three);
}

}  // namespace
}  // namespace castor
