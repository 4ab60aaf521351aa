// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/state_kind.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

using testing::ElementsAre;

TEST(StateKindTest, NamesAreFoundAndTold) {
  const StateNames sgd({"momentum_buffer"});
  EXPECT_EQ(sgd.states(), 4);
  EXPECT_THAT(sgd.all(),
              ElementsAre("param", "grad", "master", "momentum_buffer"));
  EXPECT_EQ(sgd.Find("momentum_buffer"), OptimizerState(0));
  EXPECT_EQ(sgd.Find("exp_avg"), std::nullopt);
  EXPECT_EQ(sgd.Find("master"), StateKind::kMaster);
  EXPECT_EQ(sgd.of(OptimizerState(0)), "momentum_buffer");
  EXPECT_EQ(sgd.of(OptimizerState(1)), "state4");
}

TEST(StateKindTest, OptimizersMayNotTakeEveryName) {
  const auto may = [](std::vector<std::string> names) {
    return AreOptimizerStates(names);
  };
  EXPECT_TRUE(may({}));
  EXPECT_TRUE(may({"exp_avg", "Step_2"}));
  EXPECT_FALSE(may({"a", "a"}));
  EXPECT_FALSE(may(std::vector<std::string>(9, "a")));
  for (const char* name : {"", "a b", "a-b", "../a", "\xc3\xa4", "param",
                           "grad", "master", "all"}) {
    EXPECT_FALSE(may({name})) << name;
  }
  // Keys of documents would be two states, or a state and a sum.
  for (const char* name :
       {"budget", "communicator", "gathered", "home", "in_use", "kept",
        "leases", "norm", "peak", "prefetch", "rounding", "staging"}) {
    EXPECT_FALSE(may({name})) << name;
    EXPECT_TRUE(may({std::string(name) + "_"})) << name;
  }
  EXPECT_TRUE(may({std::string(kMaxStateNameBytes, 'a')}));
  EXPECT_FALSE(may({std::string(kMaxStateNameBytes + 1, 'a')}));
}

}  // namespace
}  // namespace castor
