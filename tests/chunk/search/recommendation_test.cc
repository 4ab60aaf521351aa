// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/recommendation.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ChunkSizeCandidate Candidate(int64_t chunk_size, int64_t waste, int64_t chunks,
                             int64_t gathered) {
  ChunkSizeCandidate candidate;
  candidate.chunk_size = Elements(chunk_size);
  candidate.waste = Elements(waste);
  candidate.chunks = chunks;
  candidate.gathered_bytes = Bytes(gathered);
  return candidate;
}

// A payload of 19,900, so that 199 above the least waste are tolerated.
GroupSearchResult Group() {
  GroupSearchResult group;
  group.dtype = DType::kU8;
  group.payload = Elements(19900);
  group.candidates = {
      Candidate(128, 220, 80, 384), Candidate(256, 219, 40, 768),
      Candidate(512, 20, 20, 1536), Candidate(1024, 400, 10, 3072)};
  return group;
}

TEST(RecommendTest, TakesTheSmallestWithinOnePercentOfTheBest) {
  SearchResult result;
  result.groups = {Group()};
  ASSERT_THAT(Recommend(std::nullopt, &result), IsOk());
  const GroupSearchResult& group = result.groups[0];
  EXPECT_EQ(group.best.chunk_size, Elements(512));
  // 219 is 199 above the least; 220 is not within it.
  EXPECT_EQ(group.recommended.chunk_size, Elements(256));
  EXPECT_THAT(result.recommended_rule,
              AllOf(HasSubstr("1 %"), Not(HasSubstr("budget"))));
}

TEST(RecommendTest, TakesOneUpToAQuarterLargerThatWastesLess) {
  SearchResult result;
  result.groups = {Group()};
  GroupSearchResult& group = result.groups[0];
  group.candidates[2] = Candidate(320, 20, 30, 960);
  ASSERT_THAT(Recommend(std::nullopt, &result), IsOk());
  EXPECT_EQ(group.recommended.chunk_size, Elements(320));
  group = Group();
  group.candidates[2] = Candidate(321, 20, 30, 960);
  ASSERT_THAT(Recommend(std::nullopt, &result), IsOk());
  EXPECT_EQ(group.recommended.chunk_size, Elements(256));
  // Where the budget has no room for it, the smaller one.
  group = Group();
  group.candidates[2] = Candidate(320, 20, 30, 960);
  ASSERT_THAT(Recommend(Bytes(768), &result), IsOk());
  EXPECT_EQ(group.recommended.chunk_size, Elements(256));
}

TEST(RecommendTest, TakesWhatSuitsBeforeWhatWastesLess) {
  SearchResult result;
  result.groups = {Group()};
  GroupSearchResult& group = result.groups[0];
  group.candidates[1].suits = group.candidates[2].suits = false;
  ASSERT_THAT(Recommend(std::nullopt, &result), IsOk());
  // The best of the rest wastes 220.
  EXPECT_EQ(group.recommended.chunk_size, Elements(128));
  EXPECT_EQ(group.best.chunk_size, Elements(512));
  EXPECT_THAT(result.recommended_rule, HasSubstr("wastes least is smaller"));
  // Where a budget leaves nothing else, it is taken all the same.
  group = Group();
  group.candidates[0].suits = false;
  ASSERT_THAT(Recommend(Bytes(384), &result), IsOk());
  EXPECT_EQ(group.recommended.chunk_size, Elements(128));
  EXPECT_THAT(result.recommended_rule, Not(HasSubstr("wastes least is")));
}

TEST(RecommendTest, SaysWhatSpeaksForEveryCandidate) {
  SearchResult result;
  result.groups = {Group()};
  GroupSearchResult& group = result.groups[0];
  std::vector<ChunkSizeCandidate>& all = group.candidates;
  all.insert(all.begin() + 3, Candidate(600, 300, 15, 1800));
  all[4].mode = SearchMode::kLayer;
  all[4].reason = "one layer in 1 chunk";
  group.modes.resize(2);
  group.modes[0].mode = SearchMode::kUniform;
  group.modes[0].best = all[2];
  group.modes[1].mode = SearchMode::kLayer;
  group.modes[1].best = all[4];
  ASSERT_THAT(Recommend(std::nullopt, &result), IsOk());
  EXPECT_EQ(all[0].reason, "smallest working set");
  EXPECT_EQ(all[1].reason, "recommended");
  EXPECT_EQ(all[2].reason, "least waste");
  EXPECT_EQ(all[3].reason, "trade-off");
  EXPECT_EQ(all[4].reason,
            "one layer in 1 chunk, fewest chunks, best of its mode");
  EXPECT_EQ(group.best.reason, all[2].reason);
  EXPECT_EQ(group.recommended.reason, all[1].reason);
  EXPECT_EQ(group.modes[0].best.reason, all[2].reason);
  EXPECT_EQ(group.modes[1].best.reason, all[4].reason);
}

TEST(RecommendTest, StaysWithinTheBudget) {
  SearchResult result;
  result.groups = {Group()};
  ASSERT_THAT(Recommend(Bytes(768), &result), IsOk());
  EXPECT_EQ(result.groups[0].recommended.chunk_size, Elements(256));
  EXPECT_THAT(result.recommended_rule, HasSubstr("768 bytes"));
}

TEST(RecommendTest, TakesTheLeastWastefulThatFitsWhereNoneNearTheBestDoes) {
  SearchResult result;
  result.groups = {Group()};
  ASSERT_THAT(Recommend(Bytes(767), &result), IsOk());
  EXPECT_EQ(result.groups[0].best.chunk_size, Elements(512));
  EXPECT_EQ(result.groups[0].recommended.chunk_size, Elements(128));
  EXPECT_THAT(result.recommended_rule, HasSubstr("trainable U8"));
}

TEST(RecommendTest, SaysNoWithTheLeastThatWouldFit) {
  SearchResult result;
  result.groups = {Group()};
  EXPECT_THAT(
      Recommend(Bytes(383), &result),
      StatusIs(ErrorCode::kInfeasible,
               AllOf(HasSubstr("at least 384 bytes"), HasSubstr("is 383 bytes"),
                     HasSubstr("by 1 bytes"))));
  result.groups.push_back(Group());
  EXPECT_THAT(
      Recommend(Bytes(767), &result),
      StatusIs(ErrorCode::kInfeasible, HasSubstr("at least 768 bytes")));
}

TEST(RecommendTest, GroupsShareTheBudgetAndTheLargestChoosesFirst) {
  SearchResult result;
  result.groups = {Group(), Group()};
  result.groups[0].trainable = false;
  result.groups[1].payload = Elements(19901);
  ASSERT_THAT(Recommend(Bytes(768 + 384), &result), IsOk());
  EXPECT_EQ(result.groups[1].recommended.chunk_size, Elements(256));
  EXPECT_EQ(result.groups[0].recommended.chunk_size, Elements(128));
  EXPECT_THAT(result.recommended_rule, HasSubstr("frozen U8"));
}

TEST(RecommendTest, NoGroupsNeedNothing) {
  SearchResult result;
  EXPECT_THAT(Recommend(Bytes(0), &result), IsOk());
}

}  // namespace
}  // namespace castor
