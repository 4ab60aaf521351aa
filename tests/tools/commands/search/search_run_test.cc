// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "chunk/base/units.h"
#include "tests/tools/models/model_files.h"

namespace castor {
namespace {

using testing::HasSubstr;

class SearchRunTest : public testing::Test {
 protected:
  SearchRunTest() {
    request_.model = folder_.Write("m.tsv", "b\t1000\tF32\na\t3000\tF32\n");
    request_.search.min_chunk = KiB(1);
    request_.search.max_chunk = KiB(64);
    request_.rules = {CompatibilityRule::kGemini};
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
  const SearchReport report = Run().value();
  EXPECT_EQ(report.model.params.size(), 2u);
  ASSERT_EQ(report.result.groups.size(), 1u);
  EXPECT_EQ(report.rules.size(), 1u);
  EXPECT_FALSE(report.machine.has_value());
  EXPECT_FALSE(report.choice.has_value());
  EXPECT_FALSE(report.experts.has_value());
  EXPECT_EQ(out_.str(), "");
  EXPECT_THAT(err_.str(), HasSubstr("castor: note: the list is packed in"));
}

TEST_F(SearchRunTest, PrefersDeclaredSpeeds) {
  request_.machine_file =
      folder_.Write("machine.json",
                    R"({"schema":"castor.machine/1","links":{"host_to_device":)"
                    R"({"bytes_per_second":5,"latency_ns":6},"device_to_host":)"
                    R"({"bytes_per_second":7,"latency_ns":8}}})");
  request_.declared.host_to_device = {9, 10};
  const SearchReport report = Run().value();
  EXPECT_EQ(report.machine->host_to_device, (LinkModel{9, 10}));
  EXPECT_EQ(report.machine->device_to_host, (LinkModel{7, 8}));
}

TEST_F(SearchRunTest, WritesTheLayoutAndSaysWhatItRounded) {
  request_.pick = ChoicePick::kChunk;
  request_.chunk = Bytes(9000);
  request_.output = folder_.At("layout.json");
  const SearchReport report = Run().value();
  EXPECT_EQ(report.output, request_.output);
  EXPECT_TRUE(std::filesystem::exists(request_.output));
  EXPECT_EQ(report.choice->groups[0].chunk_bytes, KiB(9));
  EXPECT_THAT(err_.str(), HasSubstr("castor: note: --chunk 9000B is no"));
}

TEST_F(SearchRunTest, WritesNothingWhereTheAnswerIsNo) {
  request_.search.device_budget = Bytes(1000);
  request_.output = folder_.At("layout.json");
  EXPECT_EQ(Run().status().code(), ErrorCode::kInfeasible);
  EXPECT_FALSE(std::filesystem::exists(request_.output));
}

}  // namespace
}  // namespace castor
