// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

SearchReport Report(std::vector<ParamSpec> params, Bytes min = KiB(1)) {
  SearchReport report;
  report.model_argument = "my model.tsv";
  report.model.name = "tiny";
  report.model.source = "my model.tsv";
  report.model.params = std::move(params);
  report.options.min_chunk = min;
  report.options.max_chunk = KiB(64);
  report.result = SearchChunkSize(report.model.params, report.options).value();
  return report;
}

std::vector<std::string> Keys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Many trade-offs: sizes without a common measure.
std::vector<ParamSpec> Irregular() {
  std::vector<ParamSpec> params;
  int64_t size = 700;
  for (int i = 0; i < 60; ++i) {
    size = size * 31 % 6007;
    params.push_back({"p" + std::to_string(i), {size}, DType::kF32});
  }
  return params;
}

TEST(SearchReportTest, WritesTheDocumentOfTheDesign) {
  const Json json = SearchJson(Report(Irregular()));
  EXPECT_THAT(Keys(json),
              ElementsAre("schema", "model", "alignment", "candidates", "best",
                          "recommended", "certificate"));
  EXPECT_EQ(json["schema"], "castor.search/1");
  EXPECT_EQ(json["model"]["tensors"], 60);
  EXPECT_EQ(json["model"]["parameters"], json["model"]["elements"]);
  EXPECT_EQ(json["model"]["order"], "natural");
  EXPECT_EQ(json["alignment"]["q_elements"], 128);
  EXPECT_EQ(json["alignment"]["a_elements"], 64);
  const std::vector<std::string> keys = {
      "mode",           "chunk_elements",  "chunk_bytes",
      "chunks",         "oversize_chunks", "allocated_elements",
      "waste_elements", "waste_bytes",     "waste_fraction",
      "gathered_bytes", "reason"};
  EXPECT_EQ(Keys(json["best"]), keys);
  EXPECT_EQ(Keys(json["recommended"]), keys);
  for (const Json& candidate : json["candidates"]) {
    EXPECT_EQ(Keys(candidate), keys);
  }
  EXPECT_THAT(json["candidates"], testing::Contains(json["best"]));
  EXPECT_THAT(json["candidates"], testing::Contains(json["recommended"]));
  EXPECT_THAT(
      Keys(json["certificate"]),
      ElementsAre("lower_bound_waste_elements", "optimal", "intervals"));
  EXPECT_THAT(Keys(json["certificate"]["intervals"][0]),
              ElementsAre("from_elements", "to_elements", "chunks",
                          "oversize_elements"));
}

TEST(SearchReportTest, NamesTheGroupWhereThereAreSeveral) {
  std::vector<ParamSpec> params = Irregular();
  params.push_back({"norm", {10}, DType::kBF16});
  params.push_back({"frozen", {10}, DType::kBF16, /*trainable=*/false});
  const Json json = SearchJson(Report(params));
  ASSERT_EQ(json["best"].size(), 3u);
  ASSERT_EQ(json["recommended"].size(), 3u);
  ASSERT_EQ(json["certificate"].size(), 3u);
  EXPECT_EQ(json["best"][0]["group"], "F32");
  EXPECT_EQ(json["recommended"][1]["group"], "BF16");
  EXPECT_EQ(json["certificate"][2]["group"], "BF16 frozen");
  int64_t elements = 0;
  for (const ParamSpec& spec : params) elements += spec.shape[0];
  EXPECT_EQ(json["model"]["elements"], elements);
  EXPECT_EQ(json["model"]["total_bytes"], 4 * (elements - 20) + 2 * 20);
  for (const Json& candidate : json["candidates"]) {
    EXPECT_TRUE(candidate.contains("group"));
  }
}

TEST(SearchReportTest, WritesAModelWithoutParameters) {
  const SearchReport report = Report({});
  const Json json = SearchJson(report);
  EXPECT_TRUE(json["candidates"].empty());
  EXPECT_TRUE(json["best"].is_null());
  EXPECT_TRUE(json["recommended"].is_null());
  EXPECT_EQ(json["certificate"]["optimal"], true);
  EXPECT_THAT(SearchText(report, Emphasis::kNone),
              HasSubstr("nothing to pack"));
  EXPECT_EQ(Lines(SearchPlain(report)).size(), 1u);
}

TEST(SearchReportTest, WritesALineForEachCandidate) {
  const SearchReport report = Report(Irregular());
  const auto& candidates = report.result.groups[0].candidates;
  const std::vector<std::string> lines = Lines(SearchPlain(report));
  ASSERT_EQ(lines.size(), candidates.size() + 1);
  const auto columns = std::count(lines[0].begin(), lines[0].end(), '\t');
  EXPECT_EQ(columns, 10);
  EXPECT_EQ(lines[0][0], '#');
  for (size_t i = 0; i < candidates.size(); ++i) {
    const std::string& line = lines[i + 1];
    EXPECT_EQ(std::count(line.begin(), line.end(), '\t'), columns);
    EXPECT_EQ(
        line.rfind(
            "F32\t" + std::to_string(candidates[i].chunk_size.count()) + "\t",
            0),
        0u);
  }
}

TEST(SearchReportTest, FitsAScreenAndSaysWhatItLeavesOut) {
  const SearchReport report = Report(Irregular());
  const auto& group = report.result.groups[0];
  ASSERT_GT(group.candidates.size(), 10u);
  const std::string text = SearchText(report, Emphasis::kNone);
  EXPECT_LE(Lines(text).size(), 25u);
  EXPECT_THAT(text, HasSubstr("least waste"));
  EXPECT_THAT(text, HasSubstr("fewest chunks"));
  EXPECT_THAT(text, HasSubstr("recommended"));
  EXPECT_THAT(text, ContainsRegex("\\.\\.\\. and " +
                                  std::to_string(group.candidates.size() - 10) +
                                  " between these: --plain or --json"));
  EXPECT_THAT(text, HasSubstr("Proved      none of the 127 allowed sizes"));
  EXPECT_THAT(text, HasSubstr("castor search 'my model.tsv' --device-budget"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(SearchText(report, Emphasis::kTerminal), HasSubstr("\x1b[1m> "));
}

TEST(SearchReportTest, CountsTheShareOfOversizeParameters) {
  // 64 KiB hold 16384 F32: the second has a chunk of its own.
  const SearchReport report = Report(
      {{"a", {16384}, DType::kF32}, {"b", {49152}, DType::kF32}}, KiB(64));
  EXPECT_THAT(SearchText(report, Emphasis::kNone),
              HasSubstr("1 parameter larger than that has a chunk of its own: "
                        "75.00 % of the bytes"));
}

TEST(SearchReportTest, KeepsATerminalSafeFromNames) {
  SearchReport report = Report(Irregular());
  report.model.name = "m\x1b[2J";
  report.model.source = "s\x1b[2J";
  report.model_argument = "a\x1b[2J";
  report.model.dropped = {{"d\x1b[2J", "integers"}};
  const std::string text = SearchText(report, Emphasis::kNone);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("m\\x1b[2J: 60 tensors"));
  EXPECT_THAT(text, HasSubstr("castor search MODEL --device-budget"));
}

TEST(SearchReportTest, ListsWhatWasLeftOutByReason) {
  SearchReport report = Report(Irregular());
  report.model.dropped = {{"h.0.attn.bias", "attention mask"},
                          {"step", "integers"},
                          {"h.1.attn.bias", "attention mask"}};
  const std::string text = SearchText(report, Emphasis::kNone);
  EXPECT_THAT(
      text,
      HasSubstr("Left out    2 tensors (attention mask): \"h.0.attn.bias\", "
                "...\nLeft out    1 tensor (integers): \"step\"\n"));
  EXPECT_EQ(SearchJson(report)["model"]["dropped"][1]["name"], "step");
}

}  // namespace
}  // namespace castor
