// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/optimizer_groups.h"

#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST(OptimizerGroupsTest, WhatIsNotSetIsAsForAll) {
  OptimizerOptions all;
  all.weight_decay = 0.1;
  OptimizerGroups groups(
      all, std::vector<OptimizerGroup>{
               {.name = "norms", .lr_scale = 0.5, .weight_decay = 0.0},
               {.name = "heads", .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-4}});
  ASSERT_EQ(*groups.Find(""), 0u);
  ASSERT_EQ(*groups.Find("heads"), 2u);
  EXPECT_THAT(groups.Find("biases").status(),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("norms, heads")));
  EXPECT_EQ(groups.OptionsOf(0, 0.25).lr, 0.25);
  EXPECT_EQ(groups.OptionsOf(0, 0.25).weight_decay, 0.1);
  const OptimizerOptions norms = groups.OptionsOf(1, 0.25);
  EXPECT_EQ(norms.lr, 0.125);
  EXPECT_EQ(norms.weight_decay, 0);
  EXPECT_EQ(norms.beta1, all.beta1);
  const OptimizerOptions heads = groups.OptionsOf(2, 0.25);
  EXPECT_EQ(heads.beta1, 0.8);
  EXPECT_EQ(heads.beta2, 0.9);
  EXPECT_EQ(heads.eps, 1e-4);
  EXPECT_EQ(heads.weight_decay, 0.1);
}

TEST(OptimizerGroupsTest, ARateOfItsOwnStays) {
  OptimizerGroups groups(OptimizerOptions(), std::vector<OptimizerGroup>{
                                                 {.name = "a", .lr_scale = 2}});
  const uint64_t before = groups.HashOfRates(0.25);
  ASSERT_THAT(groups.SetLearningRate("a", 0.125), IsOk());
  EXPECT_EQ(groups.OptionsOf(1, 0.25).lr, 0.125);
  EXPECT_EQ(groups.OptionsOf(0, 0.25).lr, 0.25);
  EXPECT_NE(groups.HashOfRates(0.25), before);
  for (double lr : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                    std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(groups.SetLearningRate("a", lr),
                StatusIs(ErrorCode::kInvalidArgument));
  }
  EXPECT_THAT(groups.SetLearningRate("b", 1),
              StatusIs(ErrorCode::kInvalidArgument));
}

TEST(OptimizerGroupsTest, ARateOfTheOptionsGivesWayToOneThatIsGiven) {
  OptimizerGroups groups(
      OptimizerOptions(),
      std::vector<OptimizerGroup>{{.name = "a", .lr_scale = 2, .lr = 0.5}});
  EXPECT_EQ(groups.OptionsOf(1, 0.25).lr, 0.5);
  EXPECT_THAT(groups.GivenRates(), testing::IsEmpty());
  ASSERT_THAT(groups.SetLearningRate("a", 0.125), IsOk());
  ASSERT_THAT(groups.SetLearningRate("", 1), IsOk());
  EXPECT_EQ(groups.OptionsOf(1, 0.25).lr, 0.125);
  EXPECT_THAT(groups.GivenRates(),
              testing::ElementsAre(std::pair("", 1.0), std::pair("a", 0.125)));
}

TEST(OptimizerGroupsTest, DecayMayBeAdamsOrAdamWs) {
  const OptimizerGroups groups(
      DefaultOptimizerOptions(OptimizerKind::kAdamW),
      std::vector<OptimizerGroup>{{.name = "a", .kind = OptimizerKind::kAdam},
                                  {.name = "b"}});
  EXPECT_EQ(groups.OptionsOf(1, 0.1).kind, OptimizerKind::kAdam);
  EXPECT_EQ(groups.OptionsOf(2, 0.1).kind, OptimizerKind::kAdamW);
}

TEST(OptimizerGroupsTest, MomentumMayBeNoneButInOneWhereAMomentIsKept) {
  OptimizerOptions sgd = DefaultOptimizerOptions(OptimizerKind::kSgd);
  sgd.momentum = 0.9;
  sgd.nesterov = true;
  sgd.dampening = 0;
  const std::vector<OptimizerGroup> some = {{.name = "a", .momentum = 0.0},
                                            {.name = "b"}};
  ASSERT_THAT(CheckOptimizerGroups(sgd, some), IsOk());
  OptimizerGroups groups(sgd, some);
  EXPECT_FALSE(groups.OptionsOf(1, 0.1).nesterov);
  EXPECT_EQ(MomentsOf(groups.OptionsOf(1, 0.1)), 0);
  ASSERT_THAT(groups.SetHyperParameters("a", {.momentum = 0.5}), IsOk());
  EXPECT_TRUE(groups.OptionsOf(1, 0.1).nesterov);
  ASSERT_THAT(groups.SetHyperParameters("b", {.momentum = 0.0}), IsOk());
  EXPECT_EQ(MomentsOf(groups.OptionsOf(2, 0.1)), 0);
  // What is in no group is no other groups' measure.
  ASSERT_THAT(groups.SetHyperParameters("", {.momentum = 0.0}), IsOk());
  ASSERT_THAT(groups.SetHyperParameters("b", {.momentum = 0.8}), IsOk());
  EXPECT_TRUE(groups.OptionsOf(2, 0.1).nesterov);
  ASSERT_THAT(groups.SetHyperParameters("", {.momentum = 0.7}), IsOk());
  EXPECT_TRUE(groups.OptionsOf(0, 0.1).nesterov);
  sgd.momentum = 0;
  sgd.nesterov = false;
  const std::vector<OptimizerGroup> more = {{.name = "a", .momentum = 0.5}};
  EXPECT_THAT(CheckOptimizerGroups(sgd, more),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("group a: a momentum of 0.5 needs a moment")));
}

TEST(OptimizerGroupsTest, RefusesWhatHasNoMeaning) {
  const auto check = [](std::vector<OptimizerGroup> groups) {
    return CheckOptimizerGroups(OptimizerOptions(), groups);
  };
  EXPECT_THAT(check({{.name = "a"}, {.name = "b"}}), IsOk());
  const auto refused = [](const char* why) {
    return StatusIs(ErrorCode::kInvalidArgument, HasSubstr(why));
  };
  EXPECT_THAT(check({{.name = ""}}), refused("no name"));
  EXPECT_THAT(check({{.name = "a"}, {.name = "a"}}), refused("two"));
  EXPECT_THAT(check({{.name = "a", .lr_scale = -1}}), refused("a scales"));
  EXPECT_THAT(check({{.name = "a", .beta1 = 1}}), refused("group a: "));
  EXPECT_THAT(check({{.name = "a", .lr = -1}}), refused("group a: "));
  EXPECT_THAT(check({{.name = "a", .kind = OptimizerKind::kSgd}}),
              refused("group a is of sgd, and the optimizer is adamw"));
  EXPECT_THAT(check({{.name = "a", .span = UpdateSpan::kParameter}}),
              refused("which adamw knows by itself"));
  EXPECT_THAT(check({{.name = "a", .states = 1}}),
              refused("keeps 1 states of a custom optimizer, which has 0"));
  OptimizerOptions custom = DefaultOptimizerOptions(OptimizerKind::kCustom);
  custom.states = {"z"};
  const OptimizerGroup whole{
      .name = "a", .span = UpdateSpan::kParameter, .states = 1};
  EXPECT_THAT(CheckOptimizerGroups(custom, std::span(&whole, 1)), IsOk());
}

}  // namespace
}  // namespace castor
