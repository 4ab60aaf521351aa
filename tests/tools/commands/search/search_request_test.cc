// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/search/search_result.h"
#include "tools/cli/flags.h"
#include "tools/commands/search/search_run.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<SearchRequest> Parse(const std::vector<std::string>& args) {
  CommandLine line("castor search", "");
  SearchFlags flags;
  DeclareSearchFlags(line.app(), &flags);
  CASTOR_RETURN_IF_ERROR(ParseFlags(line.app(), args).status());
  return CheckSearchFlags(flags);
}

TEST(SearchRequestTest, SearchesAllModesWhereNothingIsSaid) {
  const SearchRequest request = Parse({"m"}).value();
  EXPECT_EQ(request.model, "m");
  EXPECT_THAT(request.search.search.modes,
              ElementsAre(SearchMode::kUniform, SearchMode::kLayer));
  EXPECT_EQ(request.search.search.gathered_slots, 3);
  EXPECT_FALSE(request.search.min.has_value());
  EXPECT_FALSE(request.search.max.has_value());
  EXPECT_FALSE(request.search.search.device_budget.has_value());
  EXPECT_EQ(request.form, Form::kPage);
}

TEST(SearchRequestTest, PassesOnWhatIsSaid) {
  const SearchRequest request =
      Parse({"m",       "--mode",          "layer",       "--prefetch",
             "4",       "--device-budget", "1GiB",        "--min",
             "1MiB",    "--max",           "2MiB",        "--world",
             "8",       "--align",         "128",         "--dtype",
             "bf16",    "--order",         "natural",     "--expert-layout",
             "fused",   "--h2d",           "24GB/s,10us", "--all-gather",
             "100GB/s", "--rule",          "gemini",      "--json"})
          .value();
  EXPECT_THAT(request.search.search.modes, ElementsAre(SearchMode::kLayer));
  EXPECT_EQ(request.search.search.gathered_slots, 6);
  EXPECT_EQ(request.search.search.device_budget, GiB(1));
  EXPECT_EQ(request.search.min, MiB(1));
  EXPECT_EQ(request.search.max, MiB(2));
  EXPECT_EQ(request.search.search.pack.world, 8);
  EXPECT_EQ(request.search.search.pack.align, Elements(128));
  EXPECT_EQ(request.read.dtype, DType::kBF16);
  EXPECT_EQ(request.read.order, ParamOrder::kNatural);
  EXPECT_EQ(request.read.expert_layout, ExpertLayout::kFused);
  EXPECT_EQ(request.search.declared.host_to_device,
            (LinkModel{24'000'000'000, 10'000}));
  EXPECT_EQ(request.search.declared.all_gather,
            (RingModel{100'000'000'000, 0}));
  EXPECT_TRUE(request.rule_asked_for);
  EXPECT_EQ(request.form, Form::kJson);
}

TEST(SearchRequestTest, TakesAnOrderFromATrace) {
  const SearchRequest request =
      Parse({"m", "--order", "trace", "--trace", "step.json"}).value();
  EXPECT_EQ(request.read.order, ParamOrder::kTrace);
  EXPECT_EQ(request.read.trace_file, "step.json");
}

TEST(SearchRequestTest, RefusesWhatMakesNoSenseTogether) {
  const auto refusal = [](const std::vector<std::string>& args) {
    const Result<SearchRequest> request = Parse(args);
    EXPECT_EQ(request.status().code(), ErrorCode::kInvalidArgument);
    return std::string(request.status().message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("MODEL is missing"));
  EXPECT_THAT(refusal({"--zoo", "m"}), HasSubstr("leave out MODEL"));
  EXPECT_THAT(refusal({"--zoo", "--explain"}), HasSubstr("--zoo takes"));
  EXPECT_THAT(refusal({"m", "--json", "--plain"}), HasSubstr("exclude"));
  EXPECT_THAT(refusal({"m", "--align", "96"}), HasSubstr("try 128"));
  EXPECT_THAT(refusal({"m", "--order", "trace"}), HasSubstr("needs the trace"));
  EXPECT_THAT(refusal({"m", "--trace", "t"}), HasSubstr("give both"));
  EXPECT_THAT(refusal({"-", "--order", "trace", "--trace", "-"}),
              HasSubstr("standard input"));
  EXPECT_THAT(refusal({"m", "--min", "2MiB", "--max", "1MiB"}),
              HasSubstr("--min 2MiB is above --max 1MiB"));
  EXPECT_THAT(refusal({"m", "--max", "0"}), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal({"m", "--reduce-scatter", "1GB/s"}),
              HasSubstr("give --world"));
  EXPECT_THAT(refusal({"m", "--prefetch", "-1"}), HasSubstr("from 0 to 1024"));
  EXPECT_THAT(refusal({"m", "--dtype", "bf61"}), HasSubstr("did you mean"));
}

}  // namespace
}  // namespace castor
