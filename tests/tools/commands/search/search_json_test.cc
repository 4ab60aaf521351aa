// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/json_value.h"
#include "tests/tools/commands/search/made_report.h"

namespace castor {
namespace {

using testing::ElementsAre;

TEST(SearchJsonTest, WritesTheDocumentOfTheDesign) {
  const JsonValue json = SearchJson(MadeReport(Irregular()));
  EXPECT_THAT(json.keys(),
              ElementsAre("schema", "model", "options", "alignment",
                          "candidates", "best", "recommended", "certificate",
                          "certificates", "rules"));
  EXPECT_EQ(json["schema"], "castor.search/1");
  EXPECT_EQ(json["model"]["tensors"], 60);
  EXPECT_EQ(json["model"]["parameters"], json["model"]["elements"]);
  EXPECT_EQ(json["model"]["order"], "natural");
  EXPECT_EQ(json["options"]["min_chunk_bytes"], 1024);
  EXPECT_EQ(json["options"]["gathered_slots"], 3);
  EXPECT_TRUE(json["options"]["device_budget_bytes"].is_null());
  EXPECT_EQ(json["alignment"]["q_elements"], 128);
  EXPECT_EQ(json["alignment"]["a_elements"], 64);
  const std::vector<std::string> keys = {
      "mode",           "chunk_elements",  "chunk_bytes",
      "chunks",         "oversize_chunks", "allocated_elements",
      "waste_elements", "waste_bytes",     "waste_fraction",
      "gathered_bytes", "reason"};
  EXPECT_EQ(json["best"].keys(), keys);
  EXPECT_EQ(json["recommended"].keys(), keys);
  for (const JsonValue& candidate : json["candidates"]) {
    EXPECT_EQ(candidate.keys(), keys);
  }
  EXPECT_THAT(json["candidates"], testing::Contains(json["best"]));
  EXPECT_THAT(json["candidates"], testing::Contains(json["recommended"]));
  EXPECT_THAT(json["certificate"].keys(),
              ElementsAre("mode", "lower_bound_waste_elements", "optimal",
                          "intervals"));
  EXPECT_THAT(json["certificates"], ElementsAre(json["certificate"]));
}

TEST(SearchJsonTest, NamesTheGroupWhereThereAreSeveral) {
  std::vector<ParamSpec> params = Irregular();
  params.push_back({"norm", {10}, DType::kBF16});
  params.push_back({"frozen", {10}, DType::kBF16, /*trainable=*/false});
  const JsonValue json = SearchJson(MadeReport(params));
  ASSERT_EQ(json["best"].size(), 3u);
  ASSERT_EQ(json["recommended"].size(), 3u);
  ASSERT_EQ(json["certificate"].size(), 3u);
  ASSERT_EQ(json["certificates"].size(), 3u);
  EXPECT_EQ(json["best"][0]["group"], "F32");
  EXPECT_EQ(json["recommended"][1]["group"], "BF16");
  EXPECT_EQ(json["certificate"][2]["group"], "BF16 frozen");
  int64_t elements = 0;
  for (const ParamSpec& spec : params) elements += spec.shape[0];
  EXPECT_EQ(json["model"]["elements"], elements);
  EXPECT_EQ(json["model"]["total_bytes"], 4 * (elements - 20) + 2 * 20);
  for (const JsonValue& candidate : json["candidates"]) {
    EXPECT_TRUE(candidate.contains("group"));
  }
  for (const std::string choice : {"best", "recommended"}) {
    int64_t waste = 0;
    int64_t gathered = 0;
    for (const JsonValue& one : json[choice]) {
      waste += one["waste_bytes"].integer();
      gathered += one["gathered_bytes"].integer();
    }
    const JsonValue& totals = json["totals"][choice];
    EXPECT_EQ(totals["waste_bytes"], waste);
    EXPECT_EQ(totals["gathered_bytes"], gathered);
    EXPECT_EQ(totals["allocated_bytes"],
              json["model"]["total_bytes"].integer() + waste);
  }
}

TEST(SearchJsonTest, WritesAModelWithoutParameters) {
  const JsonValue json = SearchJson(MadeReport({}));
  EXPECT_TRUE(json["candidates"].empty());
  EXPECT_TRUE(json["best"].is_null());
  EXPECT_TRUE(json["recommended"].is_null());
  EXPECT_EQ(json["certificate"]["optimal"], true);
  EXPECT_TRUE(json["certificates"].empty());
}

}  // namespace
}  // namespace castor
