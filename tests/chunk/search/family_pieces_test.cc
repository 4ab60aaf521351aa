// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/family_pieces.h"

#include <cstdint>
#include <random>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/chunk_size_search.h"
#include "chunk/layout/size_family.h"
#include "chunk/search/search_certificate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/chunk/naive_packing.h"
#include "tests/chunk/piece_costs.h"
#include "tests/chunk/search_input.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::HasSubstr;

// What a size gives all groups of a family, by its definition.
NaiveCost FamilyCost(const SizeFamily& family, int64_t size,
                     const PackOptions& pack) {
  std::vector<NaiveChunk> all;
  for (const PackedGroup& group : family.packed) {
    const std::vector<NaiveChunk> chunks =
        NaivePacking(group.sizes, size, pack.world, pack.align.count(),
                     pack.shards, group.whole);
    all.insert(all.end(), chunks.begin(), chunks.end());
  }
  return NaiveCostOf(all, size);
}

// Several groups, some parameters of which stay whole.
struct Drawn {
  PackOptions pack;
  std::vector<ParamSpec> params;
};

Drawn Draw(std::mt19937_64& random) {
  Drawn drawn;
  const int shards = 1 + static_cast<int>(random() % 4);
  drawn.pack.world = shards * (1 + static_cast<int>(random() % 2));
  drawn.pack.align = Elements(64 * (1 + static_cast<int64_t>(random() % 3)));
  drawn.pack.shards = shards;
  const int64_t quantum = 128 * drawn.pack.world;
  const uint64_t groups = 1 + random() % 3;
  const uint64_t whole = random() % 4;  // of four parameters
  for (const Elements size : RandomSizes(random, 30, quantum, 8 * quantum)) {
    ParamSpec spec = {"p", {size.count()}, DType::kU8, true};
    spec.states = static_cast<int>(random() % groups);
    spec.whole = size.count() < 2 * quantum && random() % 4 < whole;
    drawn.params.push_back(spec);
  }
  return drawn;
}

TEST(FamilyPiecesTest, EqualBruteForceAtEverySizeOnRandomFamilies) {
  std::mt19937_64 random(TestSeed(23));
  int with_whole = 0;
  for (int round = 0; round < TestRounds(2000); ++round) {
    const Drawn drawn = Draw(random);
    const auto families = SizeFamilies(drawn.params, drawn.pack).value();
    if (families.empty()) continue;
    const SizeFamily& family = families[0];
    if (family.quantum > ChunkQuantum(drawn.pack.world)) ++with_whole;
    const Elements min =
        family.least + family.quantum * static_cast<int64_t>(random() % 4);
    const Elements max =
        min + family.quantum * static_cast<int64_t>(random() % 16);
    const std::vector<SizePiece> pieces =
        FamilyPieces(family.packed, min, max, family.quantum, drawn.pack);
    SCOPED_TRACE(testing::Message()
                 << "round " << round << " world " << drawn.pack.world
                 << " shards " << drawn.pack.shards);
    ASSERT_EQ(pieces.front().from, min);
    for (size_t i = 1; i < pieces.size(); ++i) {
      ASSERT_LT(pieces[i - 1].from, pieces[i].from);
      ASSERT_TRUE(pieces[i - 1].chunks != pieces[i].chunks ||
                  pieces[i - 1].oversize_chunks != pieces[i].oversize_chunks);
    }
    for (Elements size = min; size <= max; size += family.quantum) {
      ASSERT_EQ(CostBy(pieces, size.count()),
                FamilyCost(family, size.count(), drawn.pack))
          << "at " << size;
    }
  }
  EXPECT_GT(with_whole, 0);
}

TEST(FamilySearchTest, IsExactAndProvedOnRandomFamilies) {
  std::mt19937_64 random(TestSeed(29));
  int tampered = 0;
  for (int round = 0; round < TestRounds(1000); ++round) {
    const Drawn drawn = Draw(random);
    const auto families = SizeFamilies(drawn.params, drawn.pack).value();
    if (families.empty()) continue;
    const SizeFamily& family = families[0];
    SearchOptions search = Between(
        family.least.count(), (family.least + family.quantum * 12).count());
    search.pack = drawn.pack;
    const SearchResult found = SearchChunkSize(drawn.params, search).value();
    ASSERT_EQ(found.groups.size(), 1u);
    const GroupSearchResult& group = found.groups[0];
    SCOPED_TRACE(testing::Message() << "round " << round);
    std::vector<NaiveCost> costs;
    for (int64_t i = 0; i <= 12; ++i) {
      costs.push_back(FamilyCost(
          family, (family.least + family.quantum * i).count(), drawn.pack));
    }
    EXPECT_EQ(group.best.allocated.count(), LeastAllocated(costs).allocated);
    SearchCertificate proof = ProofOf(group);
    EXPECT_TRUE(proof.optimal);
    const auto verify = [&] {
      return VerifyCertificate(proof, family, drawn.pack, group.best.waste);
    };
    ASSERT_THAT(verify(), IsOk());
    // The layout takes what the search says.
    const ChunkLayout layout =
        PackChunks(drawn.params,
                   SizesOfGroups(families, {{group.best.chunk_size}}),
                   drawn.pack)
            .value();
    EXPECT_EQ(layout.allocated_bytes(), Bytes(group.best.allocated.count()));
    if (family.least > family.quantum) {
      ++tampered;
      proof.min_size -= family.quantum;
      proof.intervals.front().from -= family.quantum;
      EXPECT_THAT(verify(), StatusIs(ErrorCode::kMalformed));
      proof = ProofOf(group);
    }
    ++proof.intervals.back().chunks;
    EXPECT_THAT(verify(),
                StatusIs(ErrorCode::kMalformed, HasSubstr("packing at")));
    if (HasFailure()) return;
  }
  EXPECT_GT(tampered, 0);
}

TEST(FamilySearchTest, WhatStaysWholeGoesBeforeTheLargestChunk) {
  std::vector<ParamSpec> params(4, {"p", {1000}, DType::kU8, true});
  params[2].whole = true;
  SearchOptions search = Between(512, 1024);
  search.pack = {.world = 2, .shards = 2};
  const SearchResult found = SearchChunkSize(params, search).value();
  // Two shards of 1024 elements; no smaller chunk has 1000 in one of them.
  EXPECT_EQ(found.groups[0].best.chunk_size, Elements(2048));
  params[2].whole = false;
  // Four oversize chunks of 1024 elements each.
  EXPECT_EQ(SearchChunkSize(params, search).value().groups[0].best.chunk_size,
            Elements(512));
}

TEST(FamilySearchTest, GroupsThatAreOneChunkEachHaveTheLeastSizeThatHoldsThem) {
  std::vector<ParamSpec> params(3, {"p", {300}, DType::kU8, true});
  params[2].states = 1;
  const SearchResult found =
      SearchChunkSize(params, Between(4096, 8192)).value();
  ASSERT_EQ(found.groups.size(), 1u);
  EXPECT_EQ(found.groups[0].params, 3);
  // 300 end behind 320, and 620 fit 640; the other group has the same size.
  EXPECT_EQ(found.groups[0].best.chunk_size, Elements(640));
  EXPECT_EQ(found.groups[0].best.chunks, 2);
  EXPECT_EQ(found.groups[0].best.waste, Elements(2 * 640 - 900));
  EXPECT_THAT(found.groups[0].best.reason, HasSubstr("below the minimum"));
}

}  // namespace
}  // namespace castor
