// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <variant>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/search/layer_certificate.h"
#include "chunk/search/layer_repeat.h"
#include "chunk/search/mode_search.h"
#include "gtest/gtest.h"
#include "tests/chunk/layered_shapes.h"
#include "tests/chunk/naive_packing.h"
#include "tests/chunk/search_input.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

std::optional<ModeSearch> Search(const std::vector<Elements>& sizes,
                                 const PackOptions& pack) {
  const std::vector<PackedGroup> groups = {{sizes}};
  ModeSearchInput input;
  input.groups = groups;
  for (const Elements size : sizes) input.payload += size;
  input.dtype = DType::kBF16;
  // Neither of them applies.
  input.min_size = ChunkQuantum(pack.world) * 5;
  input.max_size = ChunkQuantum(pack.world) * 6;
  input.quantum = ChunkQuantum(pack.world);
  input.pack = pack;
  return SearchLayer(input);
}

int64_t LargestOf(const std::vector<Elements>& sizes) {
  return std::max_element(sizes.begin(), sizes.end())->count();
}

// C_m of one repeat, m = 1 to 8: of the `sizes` to try, in order, the first
// that holds all of its parameters and takes at most m chunks.
std::vector<int64_t> LeastSizes(const std::vector<Elements>& one,
                                const std::set<int64_t>& sizes, int world,
                                int64_t align) {
  std::vector<int64_t> least(8, 0);
  for (const int64_t size : sizes) {
    if (size < LargestOf(one)) continue;
    const size_t chunks = NaivePacking(one, size, world, align).size();
    for (size_t m = chunks; m <= 8; ++m) {
      if (least[m - 1] == 0) least[m - 1] = size;
    }
    if (chunks == 1) break;
  }
  return least;
}

// Every multiple of Q.
std::set<int64_t> AllSizes(const std::vector<Elements>& one, int world,
                           int64_t align) {
  const int64_t quantum = int64_t{128} * world;
  int64_t end = 0;
  for (const Elements size : one) {
    end += NaiveRoundUp(size.count(), align);
  }
  std::set<int64_t> sizes;
  for (int64_t size = quantum; size < end + quantum; size += quantum) {
    sizes.insert(size);
  }
  return sizes;
}

// A chunk's parameters are neighbours, so no least size lies between the sizes
// at which some neighbours just fit: enough to try where AllSizes are too many.
std::set<int64_t> NeighboursSizes(const std::vector<Elements>& one,
                                  Elements quantum, Elements align) {
  std::set<int64_t> sizes;
  for (size_t first = 0; first < one.size(); ++first) {
    Elements end;
    for (size_t last = first; last < one.size(); ++last) {
      end = RoundUp(end, align) + one[last];
      sizes.insert(RoundUp(end, quantum).count());
    }
  }
  return sizes;
}

// Compares the answer with least sizes found otherwise.
void ExpectFound(const ModeSearch& found, const std::vector<int64_t>& least,
                 const std::vector<Elements>& sizes, const PackOptions& pack) {
  const auto& certificate =
      std::get<LayerCertificate>(found.result.certificate);
  std::vector<NaiveCost> costs;  // by falling size
  int64_t payload = 0;
  for (const Elements size : sizes) payload += size.count();
  ASSERT_EQ(certificate.steps.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    if (costs.empty() || costs.back().chunk_size != least[i]) {
      costs.push_back(
          NaiveCostOf(sizes, least[i], pack.world, pack.align.count()));
    }
    EXPECT_EQ(certificate.steps[i].chunks_per_repeat,
              static_cast<int64_t>(i) + 1);
    EXPECT_EQ(certificate.steps[i].chunk_size.count(), least[i]);
    EXPECT_EQ(certificate.steps[i].waste.count(),
              costs.back().allocated - payload);
  }
  std::reverse(costs.begin(), costs.end());
  const NaiveCost best = LeastAllocated(costs);
  EXPECT_EQ(found.result.mode, SearchMode::kLayer);
  EXPECT_TRUE(found.result.optimal);
  EXPECT_EQ(found.result.best.chunk_size.count(), best.chunk_size);
  EXPECT_EQ(found.result.best.waste.count(), best.allocated - payload);
  EXPECT_EQ(found.result.lower_bound_waste, found.result.best.waste);
  EXPECT_THAT(
      VerifyLayerCertificate(certificate, sizes, pack, found.result.best.waste),
      IsOk());

  ExpectAre(found.candidates, NaiveFront(costs), payload, DType::kBF16);
}

std::vector<Elements> OneRepeat(const std::vector<Elements>& sizes,
                                const LayerRepeat& repeat) {
  const auto first = sizes.begin() + repeat.first;
  return {first, first + repeat.params};
}

TEST(LayerSearchTest, EqualsBruteForceOnRandomLists) {
  std::mt19937_64 random(TestSeed(64));
  const int worlds[] = {1, 3};
  int searched = 0;
  for (int round = 0; round < TestRounds(2000); ++round) {
    const PackOptions pack = {
        .world = worlds[random() % 2],
        .align = Elements(64 * (1 + static_cast<int64_t>(random() % 3)))};
    const int64_t quantum = 128 * pack.world;
    std::vector<Elements> sizes =
        RandomSizes(random, 10, quantum, 20 * quantum);
    const std::vector<Elements> layer =
        RandomSizes(random, 14, quantum, 8 * quantum);
    for (int i = 0; i < 2 + round % 4; ++i) {
      sizes.insert(sizes.end(), layer.begin(), layer.end());
    }
    const std::vector<Elements> last =
        RandomSizes(random, 10, quantum, 20 * quantum);
    sizes.insert(sizes.end(), last.begin(), last.end());

    SCOPED_TRACE(testing::Message() << "round " << round);
    const std::optional<LayerRepeat> repeat = FindLayerRepeat(sizes);
    const std::optional<ModeSearch> found = Search(sizes, pack);
    ASSERT_EQ(found.has_value(), repeat.has_value());
    if (!found) continue;
    ++searched;
    const std::vector<Elements> one = OneRepeat(sizes, *repeat);
    ExpectFound(*found,
                LeastSizes(one, AllSizes(one, pack.world, pack.align.count()),
                           pack.world, pack.align.count()),
                sizes, pack);
    if (HasFailure()) return;
  }
  EXPECT_GT(searched, TestRounds(1500));
}

TEST(LayerSearchTest, EqualsBruteForceOnPublicModels) {
  int combination = 0;
  for (const PackOptions& pack :
       {PackOptions{}, PackOptions{.world = 8, .align = Elements(128)}}) {
    for (const LayeredShape& shape : LayeredShapes()) {
      // Each model for one number of ranks or the other.
      if (combination++ % std::max(2, TestStride()) != 0) continue;
      SCOPED_TRACE(testing::Message()
                   << shape.name << " on " << pack.world << " ranks");
      const std::optional<ModeSearch> found = Search(shape.sizes, pack);
      ASSERT_TRUE(found.has_value());
      const std::vector<Elements> one = OneRepeat(shape.sizes, shape.repeat);
      ExpectFound(
          *found,
          LeastSizes(one,
                     NeighboursSizes(one, ChunkQuantum(pack.world), pack.align),
                     pack.world, pack.align.count()),
          shape.sizes, pack);
    }
  }
}

TEST(LayerSearchTest, ALayerOfLlamaIsOneChunkOfItsSizeAndWastesAlmostNothing) {
  const std::vector<Elements> sizes = LlamaSizes({});
  const ModeSearch found = Search(sizes, {}).value();
  const auto& steps =
      std::get<LayerCertificate>(found.result.certificate).steps;
  // Nine tensors, all multiples of 128.
  EXPECT_EQ(steps[0].chunk_size, Elements(218'112'000));
  EXPECT_EQ(found.result.best.chunk_size, steps[0].chunk_size);
  EXPECT_EQ(found.result.best.reason, "one layer in 1 chunk");
  EXPECT_EQ(found.candidates.front().reason, "one layer in 5 chunks");
  // 32 layers, the final norm, and embedding and head each larger than that.
  EXPECT_EQ(found.result.best.chunks, 35);
  EXPECT_EQ(found.result.best.oversize_chunks, 2);
  // The final norm's chunk is all there is to waste.
  EXPECT_EQ(found.result.best.waste, Elements(218'112'000 - 4096));
}

TEST(LayerSearchTest, IsEmptyWhereNothingRepeats) {
  const std::vector<Elements> sizes = {Elements(1), Elements(2), Elements(3)};
  EXPECT_FALSE(Search(sizes, {}).has_value());
  EXPECT_FALSE(Search({}, {}).has_value());
}

TEST(LayerSearchTest, IsEmptyForSeveralGroupsAndForWhatStaysWhole) {
  const std::vector<Elements> sizes(4, Elements(128));
  ModeSearchInput input;
  input.payload = Elements(1024);
  const std::vector<PackedGroup> several = {{sizes}, {sizes}};
  input.groups = several;
  EXPECT_FALSE(SearchLayer(input).has_value());
  const std::vector<PackedGroup> whole = {{sizes, {true, false, true, false}}};
  input.groups = whole;
  EXPECT_FALSE(SearchLayer(input).has_value());
}

TEST(LayerSearchTest, IsEmptyWhereItsSumsCouldOverflow) {
  // Accepted at one quantum, not at the size of one of the two.
  const Elements huge(std::numeric_limits<int64_t>::max() / 64 / 5 * 2);
  const std::vector<Elements> sizes = {huge, huge};
  ASSERT_THAT(ValidatePackSums(sizes, Elements(128), DType::kBF16, {}), IsOk());
  EXPECT_FALSE(Search(sizes, {}).has_value());
  const Elements large = huge / 2;
  const std::vector<Elements> less = {large, large};
  EXPECT_TRUE(Search(less, {}).has_value());
}

}  // namespace
}  // namespace castor
