// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/zoo_report.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/json_value.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/search_mode.h"
#include "gtest/gtest.h"
#include "tests/support/test_rounds.h"
#include "tools/cli/console.h"
#include "tools/models/model_list.h"
#include "tools/zoo/zoo.h"
#include "tools/zoo/zoo_models.h"

namespace castor {
namespace {

SearchOptions Options() {
  SearchOptions options;
  options.pack.world = 8;
  options.modes = {SearchMode::kUniform, SearchMode::kLayer};
  return options;
}

std::vector<ZooRow> RowsOf(const std::set<std::string_view>& names) {
  std::vector<ZooRow> rows;
  for (const ZooModel& model : ZooModels()) {
    if (!names.contains(model.name)) continue;
    rows.push_back(
        SearchZooModel(model, ExpertLayout::kFused, Options()).value());
  }
  return rows;
}

std::vector<ZooRow> TwoRows() { return RowsOf({"GPT-2", "Llama-2-7B"}); }

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ZooReportTest, ThePageHasALineForEachModelWithinOneHundredColumns) {
  const std::vector<ZooRow> rows = TwoRows();
  ASSERT_EQ(rows.size(), 2u);
  const std::vector<std::string> lines = Lines(ZooText(rows, Options()));
  ASSERT_GE(lines.size(), 6u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_NE(lines[0].find("uniform"), std::string::npos);
  EXPECT_NE(lines[0].find("layer"), std::string::npos);
  EXPECT_NE(lines[3].find("Llama-2-7B"), std::string::npos);
  // Gemini's own size and waste: 45,101,056 elements of 2 bytes.
  EXPECT_NE(lines[3].find("   86   9.89%"), std::string::npos) << lines[3];
}

TEST(ZooReportTest, TheWidestRowsFitThePage) {
  const SearchOptions options = Options();
  for (const ZooModel& model : ZooModels()) {
    if (model.name.size() < 16) continue;
    const std::vector<ZooRow> rows = {
        SearchZooModel(model, ExpertLayout::kFused, options).value()};
    for (const std::string& line : Lines(ZooText(rows, options))) {
      EXPECT_LE(line.size(), 100u) << line;
    }
  }
}

TEST(ZooReportTest, MarksWhatIsAboveTheGoal) {
  // OPT-30B has nothing below 0.6 %.
  std::vector<ZooRow> rows = RowsOf({"OPT-30B", "Llama-2-7B"});
  const std::string text = ZooText(rows, Options());
  EXPECT_NE(text.find("\n! OPT-30B "), std::string::npos);
  EXPECT_NE(text.find("\n  Llama-2-7B "), std::string::npos);
  EXPECT_NE(text.find("! no mode wastes 0.3 % or less"), std::string::npos);
  rows.erase(rows.begin());
  EXPECT_EQ(ZooText(rows, Options()).find('!'), std::string::npos);
}

TEST(ZooReportTest, PlainLinesHaveAsManyFieldsAsTheFirst) {
  const std::vector<ZooRow> rows = TwoRows();
  const std::vector<std::string> lines = Lines(ZooPlain(rows));
  ASSERT_EQ(lines.size(), 1 + 2 * 3u);
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '\t'), 8) << line;
  }
  EXPECT_EQ(lines[0].front(), '#');
  EXPECT_EQ(lines[6],
            "Llama-2-7B\t-\t6738415616\t291\tgemini\t45101056\t162\t" +
                std::to_string(rows[1].gemini.packing.waste().count()) +
                "\t0.098939");
}

TEST(ZooReportTest, TheDocumentHasBoundsAndBothWastesOfGemini) {
  const std::vector<ZooRow> rows = TwoRows();
  const JsonValue json = ZooJson(rows, Options());
  EXPECT_EQ(json["schema"], "castor.search.zoo/1");
  EXPECT_EQ(json["world"], 8);
  ASSERT_EQ(json["models"].size(), 2u);
  const JsonValue& gpt2 = json["models"][0];
  EXPECT_EQ(gpt2["model"], "GPT-2");
  EXPECT_EQ(gpt2["parameters"], 124439808);
  EXPECT_EQ(gpt2["expert_layout"], nullptr);
  ASSERT_EQ(gpt2["modes"].size(), 2u);
  EXPECT_EQ(gpt2["modes"][0]["mode"], "uniform");
  EXPECT_EQ(gpt2["modes"][0]["waste_elements"],
            rows[0].modes[0].best.waste.count());
  EXPECT_EQ(gpt2["modes"][0]["lower_bound_waste_elements"],
            rows[0].modes[0].lower_bound_waste.count());
  EXPECT_TRUE(gpt2["modes"][0]["optimal"].boolean());
  EXPECT_EQ(gpt2["gemini"]["chunk_elements"], 43313152);
  EXPECT_LT(gpt2["gemini"]["claimed_waste_fraction"].real(),
            gpt2["gemini"]["waste_fraction"].real());
}

TEST(ZooReportTest, PrintsTheFormAskedForAndNothingElse) {
  const auto run = [](ZooForm form) {
    std::ostringstream out;
    std::ostringstream err;
    SearchOptions options = Options();
    options.modes = {SearchMode::kUniform};
    options.max_chunk = MiB(64);
    EXPECT_TRUE(RunZoo({.out = out, .err = err}, form, options).ok());
    EXPECT_EQ(err.str(), "");
    return out.str();
  };
  // Each searches the whole zoo: one does, where a sanitizer watches.
  if (TestStride() == 1) {
    EXPECT_EQ(ParseJson(run(ZooForm::kJson)).value()["schema"],
              "castor.search.zoo/1");
    EXPECT_EQ(run(ZooForm::kPlain).front(), '#');
  }
  EXPECT_NE(run(ZooForm::kPage).find("DeepSeek-V3, fused"), std::string::npos);
}

}  // namespace
}  // namespace castor
