// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "tests/tools/commands/search/made_report.h"
#include "tests/tools/models/model_files.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SearchRunTest : public testing::Test {
 protected:
  SearchRunTest() {
    request_.model = folder_.Write("m.tsv", "b\t1000\tF32\na\t3000\tF32\n");
    request_.search.min = KiB(1);
    request_.search.max = KiB(64);
  }

  Result<SearchReport> Run() {
    return RunSearch(request_, Console{.out = out_, .err = err_});
  }

  TempFolder folder_;
  SearchRequest request_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(SearchRunTest, ReadsAndSearches) {
  request_.read.expert_layout = ExpertLayout::kFused;
  const SearchReport report = Run().value();
  EXPECT_EQ(report.model.params.size(), 2u);
  ASSERT_EQ(report.result.groups.size(), 1u);
  EXPECT_TRUE(report.rule.has_value());
  EXPECT_FALSE(report.machine.has_value());
  EXPECT_FALSE(report.choice.has_value());
  EXPECT_FALSE(report.experts.has_value());
  EXPECT_EQ(out_.str(), "");
  EXPECT_THAT(err_.str(), HasSubstr("castor: note: the model has no experts"));
}

TEST_F(SearchRunTest, PrefersDeclaredSpeeds) {
  request_.machine_file = folder_.Write(
      "machine.json",
      R"({"schema":"castor.machine/1","links":{"host_to_device":)"
      R"({"bytes_per_second":5000000,"latency_ns":6},"device_to_host":)"
      R"({"bytes_per_second":7000000,"latency_ns":8}}})");
  request_.search.declared.host_to_device = {9, 10};
  const SearchReport report = Run().value();
  EXPECT_EQ(report.machine->host_to_device, (LinkModel{9, 10}));
  EXPECT_EQ(report.machine->device_to_host, (LinkModel{7000000, 8}));
}

TEST_F(SearchRunTest, WritesTheLayoutAndSaysWhatItRounded) {
  request_.pick = ChoicePick::kChunk;
  request_.chunk = Bytes(9000);
  request_.output = folder_.At("layout.json");
  const SearchReport report = Run().value();
  EXPECT_TRUE(std::filesystem::exists(request_.output));
  EXPECT_EQ(report.choice->groups[0].chunk_bytes, KiB(9));
  EXPECT_THAT(err_.str(), HasSubstr("castor: note: --chunk 9000B is no"));
}

TEST_F(SearchRunTest, WritesNothingWhereTheAnswerIsNo) {
  request_.search.search.device_budget = Bytes(1000);
  request_.output = folder_.At("layout.json");
  EXPECT_EQ(Run().status().code(), ErrorCode::kInfeasible);
  EXPECT_FALSE(std::filesystem::exists(request_.output));
}

// --- Its parts ---------------------------------------------------------------

std::vector<ParamSpec> TwoGroups() {
  std::vector<ParamSpec> params = Layered();
  params.push_back({"head", {3000}, DType::kBF16});
  return params;
}

SearchReport WithChunk(Bytes chunk) {
  SearchReport report = MadeReport(TwoGroups());
  report.request.pick = ChoicePick::kChunk;
  report.request.chunk = chunk;
  return report;
}

TEST(MakeChoiceTest, LaysOutWhatWasFound) {
  SearchReport report = MadeReport(TwoGroups());
  for (const ChoicePick pick : {ChoicePick::kRecommended, ChoicePick::kBest}) {
    std::vector<std::string> notes;
    report.request.pick = pick;
    const SearchChoice choice = MakeChoice(report, &notes).value();
    EXPECT_THAT(notes, testing::IsEmpty());
    ASSERT_EQ(choice.groups.size(), 2u);
    Bytes waste;
    for (size_t g = 0; g < 2; ++g) {
      const GroupSearchResult& found = report.result.groups[g];
      EXPECT_TRUE(SameChoice(choice.groups[g], pick == ChoicePick::kBest
                                                   ? found.best
                                                   : found.recommended));
      waste += choice.groups[g].waste_bytes;
    }
    EXPECT_EQ(choice.layout.allocated_bytes() - choice.layout.payload_bytes(),
              waste);
  }
}

TEST(MakeChoiceTest, RoundsAGivenSizeUpAndSaysSo) {
  const SearchReport report = WithChunk(Bytes(9000));
  std::vector<std::string> notes;
  // 9000 bytes are 2250 elements of F32 and 4500 of BF16.
  const SearchChoice choice = MakeChoice(report, &notes).value();
  EXPECT_EQ(choice.groups[0].chunk_size, Elements(2304));
  EXPECT_EQ(choice.groups[1].chunk_size, Elements(4608));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("chunks of F32 are 9KiB"),
                                 HasSubstr("chunks of BF16 are 9KiB")));
  // 5000, 3000 and 2900 elements do not fit: three sizes of oversize chunks.
  EXPECT_EQ(choice.groups[0].oversize_chunks, 25);
  EXPECT_EQ(choice.groups[0].gathered_bytes,
            Bytes(4 * (3 * 2304 + 5120 + 3072 + 2944)));
  EXPECT_EQ(choice.groups[0].allocated, choice.layout.allocated(0));
  EXPECT_EQ(choice.groups[0].chunks + choice.groups[1].chunks,
            static_cast<int64_t>(choice.layout.chunks().size()));
}

TEST(MakeChoiceTest, RefusesASizeThatCannotBeCounted) {
  std::vector<std::string> notes;
  const Result<SearchChoice> choice =
      MakeChoice(WithChunk(Bytes(int64_t{1} << 62)), &notes);
  EXPECT_EQ(choice.status().code(), ErrorCode::kInvalidArgument);
}

TEST(ApplyRuleTest, PutsGeminisBesideWhatItCostsHere) {
  // Large enough for the rule's own limits.
  std::vector<ParamSpec> params;
  for (int i = 0; i < 40; ++i) {
    params.push_back({"l." + std::to_string(i) + ".w",
                      {9'000'000 + i % 3 * 100'000},
                      DType::kBF16});
  }
  const auto apply = [](std::vector<ParamSpec> specs) {
    const SearchReport report = MadeReport(std::move(specs));
    return ApplyRule(report.model.params, report.search, report.result).value();
  };
  const std::optional<RuleReport> rule = apply(params);
  ASSERT_TRUE(rule.has_value());
  ASSERT_EQ(rule->in_castor.size(), 1u);
  EXPECT_GE(rule->in_castor[0].chunk_size, rule->rule.chunk_size);
  EXPECT_EQ(apply({}), std::nullopt);
}

TEST(SearchReportTest, AddsUpModelAndChoicesInBytes) {
  const SearchReport report = MadeReport(
      {{"a", {1000}, DType::kF32}, {"b", {500}, DType::kBF16}}, KiB(64));
  // Both groups are below the minimum: a chunk each, rounded up to 128.
  const SearchTotals best = TotalsOf(report.result, &GroupSearchResult::best);
  EXPECT_EQ(best.elements, 1500);
  EXPECT_EQ(best.bytes, Bytes(5000));
  EXPECT_EQ(best.chunks, 2);
  EXPECT_EQ(best.allocated, Bytes(1024 * 4 + 512 * 2));
  EXPECT_EQ(best.waste, Bytes(24 * 4 + 12 * 2));
  EXPECT_EQ(best.gathered, 3 * best.allocated);
}

}  // namespace
}  // namespace castor
