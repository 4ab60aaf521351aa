// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/rank_scope.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::ElementsAre;

std::vector<int> Members(const RankScope& scope, int rank, int world) {
  std::vector<int> members;
  for (int i = 0; i < scope.size(world); ++i) {
    members.push_back(scope.member(i, rank, world));
  }
  return members;
}

std::vector<int> Places(const RankScope& scope, int world) {
  std::vector<int> places;
  for (int rank = 0; rank < world; ++rank) {
    places.push_back(scope.place(rank, world));
  }
  return places;
}

TEST(RankScopeTest, IsWhatThePictureShows) {
  EXPECT_THAT(Members({Among::kGroup, 4}, 6, 8), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Members({Among::kReplicas, 4}, 6, 8), ElementsAre(2, 6));
  EXPECT_THAT(Places({Among::kGroup, 4}, 8),
              ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(Places({Among::kReplicas, 4}, 8),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  // Slices 0 and 1 are of ranks 0 and 4, 2 and 3 of ranks 1 and 5, ...
  EXPECT_THAT(Places({Among::kWorld, 4}, 8),
              ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(Places(RankScope(), 4), ElementsAre(0, 1, 2, 3));
}

TEST(RankScopeTest, AWorldFallsIntoGroupsThatDivideIt) {
  for (const int group : {0, 1, 2, 3, 6}) {
    EXPECT_TRUE((RankScope{Among::kGroup, group}).Divides(6)) << group;
  }
  for (const int group : {-1, 4, 5, 7, 12}) {
    EXPECT_FALSE((RankScope{Among::kGroup, group}).Divides(6)) << group;
  }
}

// Whom a rank gathers from has it among its own, in the same order, and each of
// them has a slice of its own.
TEST(RankScopeTest, RanksAgreeOnWhoIsAmongThemAndOnEveryonesPlace) {
  for (int world = 1; world <= 12; ++world) {
    for (int group = 0; group <= world; ++group) {
      for (const Among among :
           {Among::kWorld, Among::kGroup, Among::kReplicas}) {
        const RankScope scope{among, group};
        if (!scope.Divides(world)) continue;
        for (int rank = 0; rank < world; ++rank) {
          const std::vector<int> members = Members(scope, rank, world);
          EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
          EXPECT_EQ(members[static_cast<size_t>(scope.index(rank, world))],
                    rank);
          std::vector<bool> taken(members.size(), false);
          for (const int other : members) {
            EXPECT_EQ(Members(scope, other, world), members);
            const auto place = static_cast<size_t>(scope.place(other, world));
            ASSERT_LT(place, taken.size());
            EXPECT_FALSE(taken[place]);
            taken[place] = true;
          }
        }
      }
    }
  }
}

// What replicas gather of each other's slices is what the group's all-gather
// makes whole: the slice of the whole world lies inside the group's.
TEST(RankScopeTest, SlicesOfReplicasAreOnePiece) {
  for (int world = 1; world <= 12; ++world) {
    for (int group = 1; group <= world; ++group) {
      if (world % group != 0) continue;
      const int replicas = world / group;
      for (int rank = 0; rank < world; ++rank) {
        const int slice = RankScope{Among::kWorld, group}.place(rank, world);
        const int shard = RankScope{Among::kGroup, group}.place(rank, world);
        const int part = RankScope{Among::kReplicas, group}.place(rank, world);
        EXPECT_EQ(slice, shard * replicas + part);
      }
    }
  }
}

TEST(RankScopeTest, OneGroupOfAllIsPlain) {
  EXPECT_TRUE(RankScope().plain(6));
  EXPECT_TRUE((RankScope{Among::kWorld, 6}).plain(6));
  EXPECT_TRUE((RankScope{Among::kWorld, 1}).plain(6));
  EXPECT_TRUE((RankScope{Among::kGroup, 6}).plain(6));
  EXPECT_TRUE((RankScope{Among::kReplicas, 1}).plain(6));
  EXPECT_FALSE((RankScope{Among::kWorld, 2}).plain(6));
  EXPECT_FALSE((RankScope{Among::kGroup, 1}).plain(6));
  EXPECT_FALSE((RankScope{Among::kReplicas, 6}).plain(6));
}

}  // namespace
}  // namespace castor
