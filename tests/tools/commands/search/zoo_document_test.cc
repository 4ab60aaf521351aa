// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/search/search_result.h"
#include "chunk/text/json_value.h"
#include "collectives/answers/search_words.h"
#include "tests/tools/commands/search/made_report.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/search/search_document.h"
#include "tools/models/model_list.h"
#include "tools/zoo/zoo.h"

namespace castor {
namespace {

SearchQuestion Question() {
  SearchQuestion question;
  question.search.pack.world = 8;
  question.search.modes = {SearchMode::kUniform, SearchMode::kLayer};
  return question;
}

std::vector<ZooRow> RowsOf(const std::set<std::string_view>& names) {
  std::vector<ZooRow> rows;
  for (const ZooModel& model : ZooModels()) {
    if (!names.contains(model.name)) continue;
    rows.push_back(
        SearchZooModel(model, ExpertLayout::kFused, Question()).value());
  }
  return rows;
}

TEST(ZooDocumentTest, HasBoundsAndBothWastesOfGemini) {
  const std::vector<ZooRow> rows = RowsOf({"GPT-2", "Llama-2-7B"});
  const Document document = ZooDocument(rows, Question());
  const JsonValue& json = document.Json();
  EXPECT_EQ(json["schema"], "castor.search.zoo/1");
  EXPECT_EQ(json["world"], 8);
  ASSERT_EQ(json["models"].size(), 2u);
  const JsonValue& gpt2 = json["models"][0];
  EXPECT_EQ(gpt2["model"], "GPT-2");
  EXPECT_EQ(gpt2["parameters"], 124439808);
  EXPECT_EQ(gpt2["expert_layout"], nullptr);
  // A sixteenth of the model each, and 640 MiB at most.
  EXPECT_EQ(gpt2["max_chunk_bytes"], 124439808 * 2 / 16);
  EXPECT_EQ(gpt2["min_chunk_bytes"], 124439808 * 2 / 32);
  EXPECT_EQ(json["models"][1]["max_chunk_bytes"], MiB(640).count());
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

  const std::vector<std::string> lines = Lines(document.Plain());
  ASSERT_EQ(lines.size(), 1 + 2 * 3u);
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '\t'), 8) << line;
  }
  EXPECT_EQ(lines[0].front(), '#');
  EXPECT_EQ(lines[6].rfind(
                "Llama-2-7B\t-\t6738415616\t291\tgemini\t45101056\t"
                "162\t" +
                    std::to_string(rows[1].gemini.packing.waste().count()) +
                    "\t0.0989",
                0),
            0u)
      << lines[6];
}

TEST(ZooDocumentTest, MarksWhatIsAboveTheGoal) {
  // OPT-30B has nothing below 0.6 %.
  std::vector<ZooRow> rows = RowsOf({"OPT-30B", "Llama-2-7B"});
  const std::string page = ZooDocument(rows, Question()).Page();
  EXPECT_NE(page.find("\n> OPT-30B "), std::string::npos);
  EXPECT_NE(page.find("\n  Llama-2-7B "), std::string::npos);
  EXPECT_NE(page.find("no mode wastes 0.3 %"), std::string::npos);
  rows.erase(rows.begin());
  EXPECT_EQ(ZooDocument(rows, Question()).Page().find('>'), std::string::npos);
}

TEST(ZooDocumentTest, TheWidestRowsFitThePage) {
  for (const ZooModel& model : ZooModels()) {
    if (model.name.size() < 16) continue;
    const std::vector<ZooRow> rows = {
        SearchZooModel(model, ExpertLayout::kFused, Question()).value()};
    for (const std::string& line :
         Lines(ZooDocument(rows, Question()).Page())) {
      EXPECT_LE(line.size(), kPageColumns) << line;
    }
  }
}

}  // namespace
}  // namespace castor
