// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/chunk_size_search.h"

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "chunk/search/layer_certificate.h"
#include "chunk/search/search_certificate.h"
#include "chunk/search/search_result.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/search_input.h"
#include "tests/support/status_matchers.h"
#include "tools/bench/support/model_shapes.h"

namespace castor {
namespace {

using testing::HasSubstr;

// Sizes are counted in elements: what a list's dtype is changes bytes, and
// nothing else (PatrickStar and OSLO take one for the other, defect B1).
TEST(ChunkSizeSearchTest, TheSameElementsOfAnotherTypePackAlike) {
  std::vector<Elements> sizes;
  for (int64_t i = 0; i < 60; ++i) sizes.emplace_back(100 + i * i * 37 % 5000);
  std::vector<Elements> chunks;
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32}) {
    SearchOptions options;
    options.min_chunk = BytesOf(Elements(4096), dtype);
    options.max_chunk = BytesOf(Elements(32768), dtype);
    chunks.push_back(SearchChunkSize(ParamsOf(sizes, dtype), options)
                         .value()
                         .groups[0]
                         .best.chunk_size);
    EXPECT_GE(chunks.back(), Elements(4096));
    EXPECT_EQ(chunks.back(), chunks.front());
  }
}

TEST(ChunkSizeSearchTest, AGroupBelowTheMinimumIsOneChunkOfItsSize) {
  const std::vector<ParamSpec> params =
      ParamsOf({Elements(100), Elements(50)}, DType::kF32);
  const SearchResult result = SearchChunkSize(params, {}).value();
  const GroupSearchResult& group = result.groups[0];
  ASSERT_EQ(group.candidates.size(), 1u);
  // 128 + 50, rounded up to 128.
  EXPECT_EQ(group.best.chunk_size, Elements(256));
  EXPECT_EQ(group.best.chunks, 1);
  EXPECT_EQ(group.recommended.chunk_size, Elements(256));
  EXPECT_THAT(group.best.reason, HasSubstr("below the minimum"));
  EXPECT_EQ(ProofOf(group).min_size, ProofOf(group).max_size);
}

TEST(ChunkSizeSearchTest, PackingAtTheBestSizeCostsWhatTheSearchSays) {
  const std::vector<ParamSpec> params = Gpt2Params({}, DType::kF32);
  SearchOptions options;
  options.pack.world = 3;
  const SearchResult result = SearchChunkSize(params, options).value();
  const ChunkSizeCandidate& best = result.groups[0].best;
  const Elements sizes[] = {best.chunk_size};
  const ChunkLayout layout = PackChunks(params, sizes, options.pack).value();
  EXPECT_EQ(layout.waste(0), best.waste);
  EXPECT_EQ(static_cast<int64_t>(layout.chunks().size()), best.chunks);
}

TEST(ChunkSizeSearchTest, SearchesEveryGroupByItself) {
  std::vector<ParamSpec> params = {{"a", {1000}, DType::kU8, true},
                                   {"b", {1000}, DType::kBF16, true},
                                   {"c", {1000}, DType::kU8, false},
                                   {"d", {600}, DType::kU8, true}};
  const SearchResult result =
      SearchChunkSize(params, Between(256, 4096)).value();
  ASSERT_EQ(result.groups.size(), 3u);
  EXPECT_EQ(result.groups[0].payload, Elements(1600));
  EXPECT_EQ(result.groups[1].dtype, DType::kBF16);
  EXPECT_FALSE(result.groups[2].trainable);
  // The range is in bytes: 128 elements of two bytes are the least of it.
  EXPECT_EQ(ProofOf(result.groups[1]).min_size, Elements(128));
  EXPECT_EQ(ProofOf(result.groups[0]).min_size, Elements(256));
}

TEST(ChunkSizeSearchTest, TheBudgetBoundsAllGroupsTogether) {
  const std::vector<ParamSpec> params = {{"a", {10000}, DType::kU8, true},
                                         {"b", {10000}, DType::kU8, false}};
  SearchOptions options = Between(10112, 16384);
  options.device_budget = Bytes(2 * 3 * 10112);
  // Both are below the minimum and one chunk of 10112 each.
  const Result<SearchResult> fits = SearchChunkSize(params, options);
  ASSERT_THAT(fits, IsOk());
  options.device_budget = Bytes(2 * 3 * 10112 - 1);
  EXPECT_THAT(SearchChunkSize(params, options),
              StatusIs(ErrorCode::kInfeasible, HasSubstr("60672")));
}

TEST(ChunkSizeSearchTest, ListsTheCandidatesOfAllModesBySize) {
  const std::vector<ParamSpec> params = LlamaParams({}, DType::kBF16);
  SearchOptions options;
  options.modes = {SearchMode::kLayer, SearchMode::kUniform,
                   SearchMode::kLayer};
  const SearchResult result = SearchChunkSize(params, options).value();
  const GroupSearchResult& group = result.groups[0];
  ASSERT_EQ(group.modes.size(), 2u);
  EXPECT_EQ(group.modes[0].mode, SearchMode::kUniform);
  EXPECT_EQ(group.modes[1].mode, SearchMode::kLayer);
  const std::vector<Elements> sizes =
      GroupSizes(params, GroupParams(params)[0]).value();
  EXPECT_THAT(
      VerifyCertificate(ProofOf(group), sizes, {}, group.modes[0].best.waste),
      IsOk());
  EXPECT_THAT(VerifyLayerCertificate(
                  std::get<LayerCertificate>(group.modes[1].certificate), sizes,
                  {}, group.modes[1].best.waste),
              IsOk());
  // One layer, and a little more so that the final norm fits in too.
  EXPECT_EQ(group.modes[1].best.chunk_size.count(), 218'112'000);
  EXPECT_EQ(group.modes[0].best.chunk_size.count(), 218'116'096);
  EXPECT_EQ(group.best.mode, SearchMode::kUniform);
  for (const ModeResult& mode : group.modes) {
    const auto listed =
        std::count_if(group.candidates.begin(), group.candidates.end(),
                      [&mode](const ChunkSizeCandidate& candidate) {
                        return candidate.mode == mode.mode &&
                               candidate.chunk_size == mode.best.chunk_size;
                      });
    EXPECT_EQ(listed, 1);
  }
  for (size_t i = 1; i < group.candidates.size(); ++i) {
    EXPECT_LE(group.candidates[i - 1].chunk_size,
              group.candidates[i].chunk_size);
  }
}

// A layer's chunk knows no bounds, and is recommended within them alone.
TEST(ChunkSizeSearchTest, RecommendsNoLayerOutsideTheBounds) {
  std::vector<Elements> sizes;
  for (int layer = 0; layer < 40; ++layer) {
    sizes.insert(sizes.end(), {Elements(5000), Elements(4000), Elements(680)});
  }
  const std::vector<ParamSpec> params = ParamsOf(sizes, DType::kU8);
  const auto recommended = [&params](int64_t min, int64_t max) {
    SearchOptions options = Between(min, max);
    options.modes = {SearchMode::kUniform, SearchMode::kLayer};
    const SearchResult result = SearchChunkSize(params, options).value();
    EXPECT_EQ(result.groups[0].best.chunk_size, Elements(9856));
    return result.groups[0].recommended;
  };
  const ChunkSizeCandidate larger = recommended(12000, 15000);
  EXPECT_EQ(larger.mode, SearchMode::kUniform);
  EXPECT_GE(larger.chunk_size, Elements(12000));
  const ChunkSizeCandidate smaller = recommended(5120, 9000);
  EXPECT_EQ(smaller.mode, SearchMode::kUniform);
  EXPECT_LE(smaller.chunk_size, Elements(9000));
  EXPECT_EQ(recommended(9000, 15000).chunk_size, Elements(9856));
}

TEST(ChunkSizeSearchTest, AGroupWithoutLayersHasNoLayerMode) {
  const std::vector<ParamSpec> params =
      ParamsOf({Elements(5), Elements(7)}, DType::kF32);
  SearchOptions options;
  options.modes = {SearchMode::kUniform, SearchMode::kLayer};
  const SearchResult result = SearchChunkSize(params, options).value();
  ASSERT_EQ(result.groups[0].modes.size(), 1u);
  EXPECT_EQ(result.groups[0].modes[0].mode, SearchMode::kUniform);
  options.modes = {SearchMode::kLayer};
  EXPECT_THAT(SearchChunkSize(params, options),
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("among the 2 trainable F32 parameters")));
}

TEST(ChunkSizeSearchTest, RefusesRangesThatMeanNothing) {
  const std::vector<ParamSpec> params = ParamsOf({Elements(5)}, DType::kF32);
  EXPECT_THAT(SearchChunkSize(params, Between(1024, 512)),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("1024 to 512")));
  EXPECT_THAT(SearchChunkSize(params, Between(-1, 512)),
              StatusIs(ErrorCode::kInvalidArgument));
  // No multiple of 512 bytes lies between.
  EXPECT_THAT(SearchChunkSize(params, Between(513, 1023)),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("512 bytes")));
  EXPECT_THAT(SearchChunkSize(params, Between(0, 511)),
              StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(SearchChunkSize(params, Between(0, int64_t{1} << 62)),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("at most")));
  SearchOptions options;
  options.pack.world = 0;
  EXPECT_THAT(SearchChunkSize(params, options),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("ranks")));
}

TEST(ChunkSizeSearchTest, RefusesMalformedAndOverflowingLists) {
  EXPECT_THAT(SearchChunkSize(ParamsOf({Elements(-1)}, DType::kF32), {}),
              StatusIs(ErrorCode::kMalformed, HasSubstr("'p'")));
  const std::vector<Elements> huge(40, Elements(int64_t{1} << 57));
  EXPECT_THAT(SearchChunkSize(ParamsOf(huge, DType::kF32), {}),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("2^63 bits")));
}

// Public models: the known optimum, confirmed by a scan of every allowed size
// around it with one packing each.
struct KnownOptimum {
  const char* model;
  std::vector<ParamSpec> params;
  int64_t chunk_size;
  int64_t chunks;
};

TEST(ChunkSizeSearchTest, FindsTheKnownOptimaOfPublicModels) {
  const KnownOptimum known[] = {
      {"GPT-2 XL", Gpt2Params({}, DType::kBF16), 194'764'800, 8},
      {"Llama-3-8B", LlamaParams({}, DType::kBF16), 218'116'096, 34},
      {"Llama-3-70B", LlamaParams(Llama3With70B(), DType::kBF16), 75'513'856,
       403},
  };
  SearchOptions options;
  options.pack.world = 8;
  const Elements quantum = ChunkQuantum(8);
  for (const KnownOptimum& model : known) {
    SCOPED_TRACE(model.model);
    const SearchResult result = SearchChunkSize(model.params, options).value();
    const GroupSearchResult& group = result.groups[0];
    EXPECT_EQ(group.best.chunk_size.count(), model.chunk_size);
    EXPECT_EQ(group.best.chunks, model.chunks);
    EXPECT_LE(group.best.waste_fraction, 0.003);

    const std::vector<Elements> sizes =
        GroupSizes(model.params, GroupParams(model.params)[0]).value();
    EXPECT_THAT(VerifyCertificate(ProofOf(group), sizes, options.pack,
                                  group.best.waste),
                IsOk());
    for (Elements size = Elements(model.chunk_size) - quantum * 2000;
         size <= Elements(model.chunk_size) + quantum * 2000; size += quantum) {
      const Elements waste =
          CountPacking(sizes, size, options.pack).allocated - group.payload;
      ASSERT_GE(waste, group.best.waste) << size;
      if (size < Elements(model.chunk_size)) {
        ASSERT_GT(waste, group.best.waste) << size;
      }
    }
  }
}

TEST(ChunkSizeSearchTest, ProvesTheOptimumOfFortyFiveThousandTensors) {
  const std::vector<ParamSpec> params = DeepSeekV3Params(DType::kBF16);
  ASSERT_EQ(params.size(), 45395u);
  const SearchResult result = SearchChunkSize(params, {}).value();
  const GroupSearchResult& group = result.groups[0];
  EXPECT_EQ(group.best.chunk_size.count(), 56 << 20);
  EXPECT_LT(ProofOf(group).intervals.size(), 100u);
  const std::vector<Elements> sizes =
      GroupSizes(params, GroupParams(params)[0]).value();
  EXPECT_THAT(VerifyCertificate(ProofOf(group), sizes, {}, group.best.waste),
              IsOk());
}

}  // namespace
}  // namespace castor
