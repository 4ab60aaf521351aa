// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/mode_search.h"

#include <cstdint>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/search/search_result.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(MakeCandidateTest, CountsEveryCostFromWhatIsPacked) {
  ModeSearchInput input;
  input.payload = Elements(3000);
  input.dtype = DType::kBF16;
  input.gathered_slots = 4;
  const ChunkSizeCandidate candidate =
      MakeCandidate(SearchMode::kLayer,
                    {.from = Elements(512),
                     .chunks = 2,
                     .oversize_chunks = 3,
                     .oversize_allocated = Elements(2304),
                     .oversize_classes = Elements(1280)},
                    input);
  EXPECT_EQ(candidate.mode, SearchMode::kLayer);
  EXPECT_EQ(candidate.chunk_size, Elements(512));
  EXPECT_EQ(candidate.chunk_bytes, Bytes(1024));
  EXPECT_EQ(candidate.chunks, 2 + 3);
  EXPECT_EQ(candidate.oversize_chunks, 3);
  EXPECT_EQ(candidate.oversize_allocated, Elements(2304));
  EXPECT_EQ(candidate.allocated, Elements(2 * 512 + 2304));
  EXPECT_EQ(candidate.waste, Elements(328));
  EXPECT_EQ(candidate.waste_bytes, Bytes(656));
  EXPECT_DOUBLE_EQ(candidate.waste_fraction, 328.0 / 3328.0);
  // Four slots of the chunk size, one for each oversize size.
  EXPECT_EQ(candidate.gathered_bytes, Bytes(2 * (4 * 512 + 1280)));
  EXPECT_TRUE(candidate.reason.empty());
}

TEST(MakeCandidateTest, NothingWastesNothing) {
  const std::vector<PackedGroup> nothing(1);
  ModeSearchInput input;
  input.groups = nothing;
  const ChunkSizeCandidate candidate =
      CandidateAt(SearchMode::kUniform, Elements(128), input);
  EXPECT_EQ(candidate.chunks, 0);
  EXPECT_EQ(candidate.waste_fraction, 0);
}

ChunkSizeCandidate Candidate(int64_t size, int64_t waste, int64_t chunks,
                             int64_t gathered,
                             SearchMode mode = SearchMode::kUniform) {
  ChunkSizeCandidate candidate;
  candidate.mode = mode;
  candidate.chunk_size = Elements(size);
  candidate.waste = Elements(waste);
  candidate.chunks = chunks;
  candidate.gathered_bytes = Bytes(gathered);
  return candidate;
}

std::vector<int64_t> SizesOf(const std::vector<ChunkSizeCandidate>& all) {
  std::vector<int64_t> sizes;
  for (const ChunkSizeCandidate& one : all) {
    sizes.push_back(one.chunk_size.count());
  }
  return sizes;
}

TEST(FrontOfTest, KeepsWhatNothingElseDominatesBySize) {
  const std::vector<ChunkSizeCandidate> front =
      FrontOf({Candidate(512, 10, 4, 50), Candidate(256, 20, 8, 30),
               // As good as 256 in nothing.
               Candidate(384, 21, 9, 40), Candidate(128, 40, 16, 20)});
  EXPECT_EQ(SizesOf(front), (std::vector<int64_t>{128, 256, 512}));
}

TEST(FrontOfTest, OfEqualCostsTheSmallestOfTheFirstModeStays) {
  const std::vector<ChunkSizeCandidate> front = FrontOf(
      {Candidate(256, 10, 4, 50), Candidate(128, 10, 4, 50, SearchMode::kLayer),
       Candidate(128, 10, 4, 50, SearchMode::kUniform)});
  ASSERT_EQ(SizesOf(front), (std::vector<int64_t>{128}));
  EXPECT_EQ(front[0].mode, SearchMode::kUniform);
}

TEST(FrontOfTest, KeepsTheSmallestOfTheLeastWastefulThoughDominated) {
  // The larger chunk wastes as little, with fewer chunks and less gathered (no
  // oversize class), so the smaller is not on the front.
  const std::vector<ChunkSizeCandidate> front =
      FrontOf({Candidate(256, 10, 3, 50), Candidate(128, 10, 4, 60)});
  EXPECT_EQ(SizesOf(front), (std::vector<int64_t>{128, 256}));
}

TEST(FrontOfTest, OfNothingIsNothing) { EXPECT_TRUE(FrontOf({}).empty()); }

}  // namespace
}  // namespace castor
