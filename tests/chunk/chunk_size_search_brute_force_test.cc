// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The search's whole answer against brute force over every allowed size.

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "chunk/chunk_size_search.h"
#include "chunk/search/search_certificate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/chunk/search_input.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// All allowed sizes of one group and what they cost, by their definition:
// multiples of Q of at least min and at most max bytes, or the group's packed
// size where that is below the least of them.
std::vector<NaiveCost> BruteForce(const std::vector<Elements>& sizes,
                                  DType dtype, const SearchOptions& options) {
  const int world = options.pack.world;
  const int64_t align = options.pack.align.count();
  const int64_t quantum = 128 * world;
  std::vector<NaiveCost> costs;
  for (int64_t size = quantum;
       BytesOf(Elements(size), dtype) <= options.max_chunk; size += quantum) {
    if (BytesOf(Elements(size), dtype) < options.min_chunk) continue;
    costs.push_back(NaiveCostOf(sizes, size, world, align));
  }
  const std::vector<NaiveChunk> together =
      NaivePacking(sizes, int64_t{1} << 40, world, align);
  const int64_t packed = together.empty() ? 0 : together[0].used;
  const int64_t alone = std::max(NaiveRoundUp(packed, quantum), quantum);
  if (!costs.empty() && alone < costs.front().chunk_size) {
    costs = {NaiveCostOf(sizes, alone, world, align)};
  }
  return costs;
}

// Compares the whole answer for one group with brute force over every size.
void ExpectEqualsBruteForce(const std::vector<Elements>& sizes, DType dtype,
                            const SearchOptions& options) {
  const Result<SearchResult> result =
      SearchChunkSize(ParamsOf(sizes, dtype), options);
  if (sizes.empty()) {
    ASSERT_THAT(result, IsOk());
    EXPECT_TRUE(result->groups.empty());
    return;
  }
  const std::vector<NaiveCost> costs = BruteForce(sizes, dtype, options);
  if (costs.empty()) {
    EXPECT_THAT(result, StatusIs(ErrorCode::kInvalidArgument));
    return;
  }
  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->groups.size(), 1u);
  const GroupSearchResult& group = result->groups[0];
  int64_t payload = 0;
  for (const Elements size : sizes) payload += size.count();
  EXPECT_EQ(group.payload.count(), payload);
  EXPECT_EQ(group.params, static_cast<int64_t>(sizes.size()));

  const NaiveCost best = LeastAllocated(costs);
  ExpectIs(group.best, best, payload, dtype);
  const std::vector<NaiveCost> front = NaiveFront(costs);
  ExpectAre(group.candidates, front, payload, dtype);
  auto recommended = std::find_if(
      front.begin(), front.end(), [&best, payload](const NaiveCost& cost) {
        return (cost.allocated - best.allocated) * 100 <= payload;
      });
  const int64_t most = recommended->chunk_size + recommended->chunk_size / 4;
  for (auto one = recommended; one != front.end() && one->chunk_size <= most;
       ++one) {
    if (one->allocated < recommended->allocated) recommended = one;
  }
  EXPECT_EQ(group.recommended.chunk_size.count(), recommended->chunk_size);

  EXPECT_EQ(ProofOf(group).min_size.count(), costs.front().chunk_size);
  EXPECT_EQ(ProofOf(group).max_size.count(), costs.back().chunk_size);
  EXPECT_TRUE(ProofOf(group).optimal);
  EXPECT_EQ(ProofOf(group).lower_bound_waste, group.best.waste);
  EXPECT_THAT(
      VerifyCertificate(ProofOf(group), sizes, options.pack, group.best.waste),
      IsOk());
}

TEST(ChunkSizeSearchBruteForceTest, IsEqualOnRandomLists) {
  std::mt19937_64 random(TestSeed(5));
  const int worlds[] = {1, 3, 8};
  const int64_t aligns[] = {64, 128};
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kU8, DType::kF4};
  for (int round = 0; round < TestRounds(4000); ++round) {
    const DType dtype = dtypes[random() % 4];
    SearchOptions options;
    options.pack.world = worlds[random() % 3];
    options.pack.align = Elements(aligns[random() % 2]);
    const int64_t quantum = 128 * options.pack.world;
    const int64_t quantum_bytes = BytesOf(Elements(quantum), dtype).count();
    // Neither end is a multiple of Q as a rule, and now and then none lies
    // between them.
    options.min_chunk = Bytes(static_cast<int64_t>(
        random() % static_cast<uint64_t>(10 * quantum_bytes)));
    options.max_chunk =
        options.min_chunk +
        Bytes(static_cast<int64_t>(random() %
                                   static_cast<uint64_t>(16 * quantum_bytes)));
    SCOPED_TRACE(testing::Message()
                 << "round " << round << " world " << options.pack.world
                 << " align " << options.pack.align << " " << DTypeName(dtype)
                 << " [" << options.min_chunk << ", " << options.max_chunk
                 << "]");
    ExpectEqualsBruteForce(RandomSizes(random, 25, quantum, 14 * quantum),
                           dtype, options);
    if (HasFailure()) return;
  }
}

TEST(ChunkSizeSearchBruteForceTest, IsEqualAtEveryBorder) {
  // Every pair of sizes at and around the borders of a range of [256, 640].
  std::vector<Elements> borders;
  for (const int64_t border : {0, 64, 128, 256, 384, 640, 768}) {
    for (const int64_t step : {-1, 0, 1}) {
      if (border + step >= 0) borders.emplace_back(border + step);
    }
  }
  for (const Elements a : borders) {
    for (const Elements b : borders) {
      SCOPED_TRACE(testing::Message() << a << ", " << b);
      ExpectEqualsBruteForce({a, b}, DType::kU8, Between(256, 640));
      ExpectEqualsBruteForce({a, b, a, b}, DType::kU8, Between(256, 640));
    }
  }
}

// Elixir's search never ends where nothing is to be packed (defects D19, B17).
TEST(ChunkSizeSearchBruteForceTest, IsEqualOnSpecialLists) {
  const SearchOptions options = Between(256, 2048);
  ExpectEqualsBruteForce({}, DType::kU8, options);
  ExpectEqualsBruteForce({Elements(0)}, DType::kU8, options);
  ExpectEqualsBruteForce({Elements(0), Elements(0), Elements(500)}, DType::kU8,
                         options);
  ExpectEqualsBruteForce({Elements(1'000'000)}, DType::kU8, options);
  ExpectEqualsBruteForce(std::vector<Elements>(300, Elements(1)), DType::kU8,
                         options);
  ExpectEqualsBruteForce(std::vector<Elements>(300, Elements(129)), DType::kU8,
                         options);
}

}  // namespace
}  // namespace castor
