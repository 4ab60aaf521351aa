// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/zoo/zoo.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "chunk/search/search_result.h"
#include "collectives/answers/search_words.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

SearchQuestion AllModes() {
  SearchQuestion question;
  question.search.pack.world = 8;
  question.search.modes = {SearchMode::kUniform, SearchMode::kLayer};
  return question;
}

// Searched once for all tests that look at every row.
const std::vector<ZooRow>& Rows() {
  static const std::vector<ZooRow>& rows =
      *new std::vector<ZooRow>(SearchZoo(AllModes()).value());
  return rows;
}

// The goal: at most 0.3 % on dense models of 1B to 70B in the best mode, with
// chunks within bounds but those that hold one larger parameter. Where it is
// missed, no chunk size does better, and how much it is missed by is known.
TEST(ZooTest, WastesLittleOnDenseModels) {
  const std::map<std::string, double> above = {
      {"OPT-1.3B", 0.0096}, {"OPT-6.7B", 0.0088}, {"OPT-13B", 0.0074},
      {"OPT-30B", 0.0064},  {"OPT-66B", 0.0784},  {"Falcon-40B", 0.0035}};
  int64_t dense = 0;
  size_t missed = 0;
  for (const ZooRow& row : Rows()) {
    // Llama-3.1-70B has 70.55 billion.
    if (row.experts || row.parameters < Elements(1'000'000'000) ||
        row.parameters > Elements(71'000'000'000)) {
      continue;
    }
    SCOPED_TRACE(row.name);
    ++dense;
    EXPECT_LE(row.best.chunk_bytes, row.search.max_chunk);
    if (row.best.waste_fraction <= kZooWasteGoal) continue;
    ++missed;
    ASSERT_TRUE(above.contains(row.name));
    EXPECT_LE(row.best.waste_fraction, above.at(row.name));
  }
  EXPECT_GE(dense, 30);
  EXPECT_EQ(missed, above.size());
}

// Also where a mode wastes more than the goal, no size it allows does better.
TEST(ZooTest, ProvesTheBestOfEveryModeOnDenseModels) {
  for (const ZooRow& row : Rows()) {
    SCOPED_TRACE(row.name);
    ASSERT_EQ(row.modes.size(), 2u);
    for (const ModeResult& mode : row.modes) {
      SCOPED_TRACE(SearchModeName(mode.mode));
      EXPECT_GE(mode.best.waste, mode.lower_bound_waste);
      if (mode.best.chunk_bytes <= row.search.max_chunk) {
        EXPECT_GE(mode.best.waste, row.best.waste);
      }
      if (row.experts) continue;
      EXPECT_TRUE(mode.optimal);
      EXPECT_EQ(mode.best.waste, mode.lower_bound_waste);
    }
  }
}

TEST(ZooTest, PacksTheBestAsItSays) {
  for (const ZooModel& model : ZooModels()) {
    if (model.has_experts) continue;
    SCOPED_TRACE(model.name);
    const ZooRow row =
        SearchZooModel(model, ExpertLayout::kFused, AllModes()).value();
    const std::vector<ParamSpec> params = ZooParams(model).value();
    EXPECT_EQ(row.tensors, static_cast<int64_t>(params.size()));
    const std::vector<Elements> sizes =
        GroupSizes(params, GroupParams(params)[0]).value();
    for (const ModeResult& mode : row.modes) {
      const PackCount count =
          CountPacking(sizes, mode.best.chunk_size, row.search.pack);
      EXPECT_EQ(count.allocated - row.parameters, mode.best.waste);
      EXPECT_EQ(count.chunks, mode.best.chunks);
    }
  }
}

TEST(ZooTest, WastesNoMoreThanGeminisRuleOnDenseModels) {
  for (const ZooRow& row : Rows()) {
    SCOPED_TRACE(row.name);
    EXPECT_GT(row.gemini.chunk_size, Elements(0));
    EXPECT_EQ(row.gemini.packing.payload, row.parameters);
    if (row.experts) continue;
    // Gemini's chunks may be larger than those searched; a layer's may, too.
    Elements least = row.best.waste;
    for (const ModeResult& mode : row.modes) {
      least = std::min(least, mode.best.waste);
    }
    EXPECT_LE(least, row.gemini.packing.waste());
  }
}

TEST(ZooTest, ListsExpertsInBothLayouts) {
  const auto tensors = [](const std::string& name, ExpertLayout experts) {
    for (const ZooRow& row : Rows()) {
      if (row.name == name && row.experts == experts) return row.tensors;
    }
    return int64_t{0};
  };
  EXPECT_EQ(tensors("Qwen3-30B-A3B", ExpertLayout::kPerExpert), 18867);
  EXPECT_EQ(tensors("Qwen3-30B-A3B", ExpertLayout::kFused), 531);
}

TEST(ZooTest, RefusesOptionsThatAreForOneModel) {
  SearchQuestion question;
  question.search.device_budget = GiB(8);
  EXPECT_THAT(SearchZoo(question), StatusIs(ErrorCode::kInvalidArgument,
                                            testing::HasSubstr("budget")));
  question = {};
  question.search.pack.world = 0;
  EXPECT_THAT(SearchZoo(question), StatusIs(ErrorCode::kInvalidArgument));
}

TEST(ZooTest, NamesTheModelWhoseConfigIsBroken) {
  const auto fails = [](std::string_view config) {
    ZooModel model;
    model.name = "Broken-1B";
    model.config = config;
    EXPECT_THAT(ZooParams(model),
                StatusIs(ErrorCode::kInternal, testing::HasSubstr("Broken-1B")))
        << config;
  };
  fails("{");
  fails(R"({"model_type":"no-such-family"})");
  fails(R"({"model_type":3})");
  fails(R"({"model_type":"llama","hidden_size":-1})");
}

int64_t Total(const ZooModel& model, ExpertLayout experts) {
  const std::vector<ParamSpec> params = ZooParams(model, experts).value();
  int64_t total = 0;
  for (const ParamSpec& param : params) {
    total += CountElements(param.shape, param.dtype).value().count();
  }
  return total;
}

TEST(ZooModelsTest, HaveAsManyParametersAsArePublished) {
  for (const ZooModel& model : ZooModels()) {
    SCOPED_TRACE(model.name);
    const int64_t total = Total(model, ExpertLayout::kFused);
    EXPECT_EQ(Total(model, ExpertLayout::kPerExpert), total);
    if (model.rounded) {
      EXPECT_NEAR(static_cast<double>(total) /
                      static_cast<double>(model.published_parameters),
                  1, 0.015);
    } else {
      EXPECT_EQ(total, model.published_parameters);
    }
  }
}

TEST(ZooModelsTest, HaveExpertsWhereTheySaySo) {
  for (const ZooModel& model : ZooModels()) {
    SCOPED_TRACE(model.name);
    const size_t fused = ZooParams(model, ExpertLayout::kFused)->size();
    const size_t single = ZooParams(model, ExpertLayout::kPerExpert)->size();
    if (model.has_experts) {
      EXPECT_GT(single, 2 * fused);
    } else {
      EXPECT_EQ(single, fused);
    }
  }
}

TEST(ZooModelsTest, HaveNamesAndSourcesOfTheirOwn) {
  std::set<std::string_view> names;
  std::set<std::string_view> sources;
  for (const ZooModel& model : ZooModels()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    EXPECT_TRUE(sources.insert(model.source).second) << model.source;
  }
}

}  // namespace
}  // namespace castor
