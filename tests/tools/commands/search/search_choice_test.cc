// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/commands/search/made_report.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<ParamSpec> TwoGroups() {
  std::vector<ParamSpec> params = Layered();
  params.push_back({"head", {3000}, DType::kBF16});
  return params;
}

TEST(SearchChoiceTest, LaysOutWhatWasFound) {
  const SearchReport report = MadeReport(TwoGroups());
  for (const ChoicePick pick : {ChoicePick::kRecommended, ChoicePick::kBest}) {
    std::vector<std::string> notes;
    const SearchChoice choice =
        MakeChoice(report, pick, std::nullopt, &notes).value();
    EXPECT_THAT(notes, testing::IsEmpty());
    ASSERT_EQ(choice.groups.size(), 2u);
    for (size_t g = 0; g < 2; ++g) {
      const GroupSearchResult& found = report.result.groups[g];
      EXPECT_TRUE(SameChoice(choice.groups[g], pick == ChoicePick::kBest
                                                   ? found.best
                                                   : found.recommended));
    }
    Bytes waste;
    for (const ChunkSizeCandidate& one : choice.groups) {
      waste += one.waste_bytes;
    }
    EXPECT_EQ(choice.layout.allocated_bytes() - choice.layout.payload_bytes(),
              waste);
  }
}

TEST(SearchChoiceTest, RoundsAGivenSizeUpAndSaysSo) {
  const SearchReport report = MadeReport(TwoGroups());
  std::vector<std::string> notes;
  // 9000 bytes are 2250 elements of F32 and 4500 of BF16.
  const SearchChoice choice =
      MakeChoice(report, ChoicePick::kChunk, Bytes(9000), &notes).value();
  EXPECT_EQ(choice.groups[0].chunk_size, Elements(2304));
  EXPECT_EQ(choice.groups[1].chunk_size, Elements(4608));
  EXPECT_THAT(notes,
              ElementsAre(HasSubstr("--chunk 9000B is no multiple of 128 "
                                    "elements; chunks of F32 are 9KiB"),
                          HasSubstr("chunks of BF16 are 9KiB")));
  // 5000, 3000 and 2900 elements do not fit: three classes of oversize chunks.
  EXPECT_EQ(choice.groups[0].oversize_chunks, 25);
  EXPECT_EQ(choice.groups[0].gathered_bytes,
            Bytes(4 * (3 * 2304 + 5120 + 3072 + 2944)));
  EXPECT_EQ(choice.groups[0].allocated, choice.layout.allocated(0));
  EXPECT_EQ(choice.groups[0].chunks + choice.groups[1].chunks,
            static_cast<int64_t>(choice.layout.chunks().size()));
}

TEST(SearchChoiceTest, RefusesASizeThatCannotBeCounted) {
  std::vector<std::string> notes;
  const Result<SearchChoice> choice =
      MakeChoice(MadeReport(TwoGroups()), ChoicePick::kChunk,
                 Bytes(int64_t{1} << 62), &notes);
  EXPECT_EQ(choice.status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace castor
