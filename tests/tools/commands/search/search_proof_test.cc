// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "chunk/layer_certificate.h"
#include "tests/tools/commands/search/made_report.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A paragraph as one line.
std::string Flat(std::string text) {
  std::string flat;
  for (const char c : text) {
    const char next = c == '\n' ? ' ' : c;
    if (next != ' ' || flat.empty() || flat.back() != ' ') flat += next;
  }
  return flat;
}

// A group whose only mode found `waste` elements of F32, with a bound of 256.
GroupSearchResult Found(ModeResult mode, int64_t waste) {
  mode.lower_bound_waste = Elements(256);
  mode.optimal = waste == 256;
  mode.best.mode = mode.mode;
  mode.best.waste = Elements(waste);
  GroupSearchResult group;
  group.payload = Elements(100'000);
  group.best = mode.best;
  group.modes = {mode};
  return group;
}

TEST(SearchProofTest, ProvesUniformByItsIntervals) {
  const GroupSearchResult group = MadeReport(Irregular()).result.groups[0];
  const std::string text = Flat(ProofParagraphs(group, {}));
  EXPECT_THAT(text, StartsWith(group.modes[0].optimal ? "Proved uniform: "
                                                      : "Bounded uniform: "));
  EXPECT_THAT(text, HasSubstr("none of the 127 allowed sizes, 1 KiB to 64 KiB, "
                              "wastes less than "));
  EXPECT_THAT(text, HasSubstr(" intervals cover them"));
}

TEST(SearchProofTest, NamesTheOnlySize) {
  const GroupSearchResult group =
      MadeReport({{"a", {1000}, DType::kF32}}, KiB(64)).result.groups[0];
  EXPECT_EQ(Flat(ProofParagraphs(group, {})),
            "Proved uniform: the only allowed size, 4 KiB, wastes 96 B (24 "
            "elements) ");
}

TEST(SearchProofTest, ProvesLayerByItsRepeats) {
  ModeResult mode;
  mode.mode = SearchMode::kLayer;
  LayerCertificate certificate;
  certificate.repeat = {.first = 1, .params = 9, .repeats = 32};
  certificate.steps.resize(4);
  mode.certificate = certificate;
  EXPECT_EQ(Flat(ProofParagraphs(Found(mode, 256), {})),
            "Proved layer: 9 tensors repeat 32 times; of the least sizes that "
            "hold one repeat in 1 to 8 chunks (4 of them) none wastes less "
            "than 1 KiB (256 elements) ");
}

TEST(SearchProofTest, SaysHowFarABoundIs) {
  ModeResult mode;
  mode.certificate =
      SearchCertificate{.min_size = Elements(256), .max_size = Elements(2048)};
  const std::string text = Flat(ProofParagraphs(Found(mode, 512), {}));
  EXPECT_THAT(text, HasSubstr("Bounded uniform"));
  EXPECT_THAT(text, HasSubstr("wastes 2 KiB, a gap of 0.26 % of the model"));
  EXPECT_THAT(Flat(ProofParagraphs(Found(mode, 256), {})),
              Not(HasSubstr("gap")));
}

TEST(SearchProofTest, SummarisesTheBounds) {
  ModeResult mode;
  mode.mode = SearchMode::kLayer;
  EXPECT_EQ(Flat(ProofSummary(Found(mode, 512))),
            "Bounded nothing that is allowed wastes less than layer 1 KiB "
            "(found 2 KiB) ");
  EXPECT_EQ(Flat(ProofSummary(Found(mode, 256))),
            "Proved nothing that is allowed wastes less than layer 1 KiB ");
}

}  // namespace
}  // namespace castor
