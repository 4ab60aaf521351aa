// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Castor's lists of parameters against those that the Transformers library
// registers, of which transformers_lists.json keeps the digests. How they were
// made, and how they are compared line by line, is in transformers_lists.py.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdint>
#include <set>
#include <string>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "chunk/text/json_value.h"
#include "tests/support/file_text.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/family_model.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

JsonValue ReadCases() {
  return ParseJson(FileText("tests/tools/models/transformers_lists.json"))
      .value();
}

Result<FamilyModel> Build(const JsonValue& test_case) {
  CASTOR_ASSIGN_OR_RETURN(const ConfigValues config,
                          ConfigValues::Parse(test_case["config"].Dump()));
  return BuildFamilyModel(config, test_case["layout"] == "fused"
                                      ? ExpertLayout::kFused
                                      : ExpertLayout::kPerExpert);
}

TEST(TransformersListsTest, AreCastors) {
  for (const JsonValue& test_case : ReadCases()) {
    SCOPED_TRACE(test_case["name"].text());
    const auto model = Build(test_case);
    ASSERT_TRUE(model.ok()) << model.status();
    std::string text;
    int64_t elements = 0;
    for (const ParamSpec& spec : model->params) {
      text += fmt::format("{}\t{}\n", spec.name, fmt::join(spec.shape, ","));
      elements += CountElements(spec.shape, spec.dtype).value().count();
    }
    EXPECT_EQ(model->params.size(), test_case["parameters"]);
    EXPECT_EQ(elements, test_case["elements"]);
    EXPECT_EQ(fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())),
              test_case["xxh3"])
        << text.substr(0, 4000);
    EXPECT_TRUE(model->notes.empty());
  }
}

TEST(TransformersListsTest, CoverEveryFamily) {
  std::set<std::string> covered;
  for (const JsonValue& test_case : ReadCases()) {
    covered.insert(test_case["config"]["model_type"].text());
  }
  // The library has no such family; family_model_test compares the list with
  // DeepSeek's.
  covered.insert("kimi_k2");
  EXPECT_EQ(covered, std::set<std::string>(KnownFamilies().begin(),
                                           KnownFamilies().end()));
}

}  // namespace
}  // namespace castor
