// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/did_you_mean.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace castor {
namespace {

const std::vector<std::string> kKnown = {"--world", "--min", "--max",
                                         "--device-budget"};

TEST(DidYouMeanTest, FindsSwappedMissingAddedAndChangedLetters) {
  EXPECT_EQ(NearestName("--wrold", kKnown), "--world");
  EXPECT_EQ(NearestName("--wold", kKnown), "--world");
  EXPECT_EQ(NearestName("--worlds", kKnown), "--world");
  EXPECT_EQ(NearestName("--morld", kKnown), "--world");
  EXPECT_EQ(NearestName("--device_budget", kKnown), "--device-budget");
  EXPECT_EQ(NearestName("-world", kKnown), "--world");
  EXPECT_EQ(NearestName("--WORLD", kKnown), "--world");
}

TEST(DidYouMeanTest, PrefersTheNearestThenTheFirst) {
  EXPECT_EQ(NearestName("--max", kKnown), "--max");
  EXPECT_EQ(NearestName("--mix", kKnown), "--min");
}

TEST(DidYouMeanTest, OffersNothingFarAway) {
  EXPECT_EQ(NearestName("--verbose", kKnown), std::nullopt);
  EXPECT_EQ(NearestName("", kKnown), std::nullopt);
  EXPECT_EQ(NearestName(std::string(100'000, 'x'), kKnown), std::nullopt);
  EXPECT_EQ(NearestName("--max", {}), std::nullopt);
}

TEST(DidYouMeanTest, ListsWhatIsKnownWhereNothingIsNear) {
  const std::vector<std::string> modes = {"uniform", "layer"};
  EXPECT_EQ(SuggestName("unifrom", modes), "; did you mean uniform?");
  EXPECT_EQ(SuggestName("zzz", modes), "; known are uniform, layer");
}

}  // namespace
}  // namespace castor
