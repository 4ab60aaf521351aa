// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/param_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "tools/models/model_list.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelList Lora() {
  ModelList list;
  for (const std::string name :
       {"model.embed.weight", "model.layers.0.q.weight",
        "model.layers.0.q.lora_A.weight", "model.layers.0.q.lora_B.weight",
        "lm_head.weight"}) {
    list.params.push_back({name, {4}});
  }
  list.dropped.push_back({"model.inv_freq", "rotary table"});
  return list;
}

std::vector<bool> Trained(const ModelList& list) {
  std::vector<bool> trained;
  for (const ParamSpec& spec : list.params) trained.push_back(spec.trainable);
  return trained;
}

TEST(ParamFilterTest, FreezesAndTrainsByName) {
  ModelList list = Lora();
  ASSERT_TRUE(FilterTrainable({}, {}, list).ok());
  EXPECT_THAT(Trained(list), ElementsAre(true, true, true, true, true));
  ASSERT_TRUE(FilterTrainable({"*embed*", "lm_head.*"}, {}, list).ok());
  EXPECT_THAT(Trained(list), ElementsAre(false, true, true, true, false));
  ASSERT_TRUE(FilterTrainable({}, {"*.lora_[AB].*"}, list).ok());
  EXPECT_THAT(Trained(list), ElementsAre(false, false, true, true, false));
  ASSERT_TRUE(FilterTrainable({"*lora_A*"}, {"*lora*"}, list).ok());
  EXPECT_THAT(Trained(list), ElementsAre(false, false, false, true, false));
}

std::string Refusal(const std::vector<std::string>& freeze,
                    const std::vector<std::string>& only) {
  ModelList list = Lora();
  const Status status = FilterTrainable(freeze, only, list);
  EXPECT_EQ(ExitCode(status.code()), 2) << status;
  return std::string(status.message());
}

TEST(ParamFilterTest, RefusesWhatMatchesNothing) {
  EXPECT_THAT(Refusal({"*embed*", "model.embed.wieght"}, {}),
              HasSubstr("--freeze \"model.embed.wieght\" matches none of the "
                        "model's 5 parameters; did you mean "
                        "\"model.embed.weight\"?"));
  EXPECT_THAT(Refusal({}, {"*adapter*"}),
              testing::AllOf(HasSubstr("--only \"*adapter*\""),
                             HasSubstr("first of which is "
                                       "\"model.embed.weight\"")));
  EXPECT_THAT(Refusal({"*inv_freq"}, {}),
              HasSubstr("only \"model.inv_freq\", which is none (rotary "
                        "table)"));
  ModelList none;
  EXPECT_FALSE(FilterTrainable({"*"}, {}, none).ok());
}

}  // namespace
}  // namespace castor
