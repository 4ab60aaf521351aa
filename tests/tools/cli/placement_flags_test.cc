// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/placement_flags.h"

#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"
#include "placement/static_policy.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(PlacementFlagsTest, LimitsAreSizesOrPercentages) {
  const auto limits =
      ParseLimitFlag({"param@device=12.5%", "exp_avg@host=1.5GiB",
                      "all@nvme=100%", "grad@host=0"});
  ASSERT_THAT(limits, IsOk());
  const StateLimits& param = (*limits)[static_cast<size_t>(StateKind::kParam)];
  EXPECT_EQ(param.device, StateLimit(0.125));
  EXPECT_EQ(param.host, std::nullopt);
  EXPECT_EQ((*limits)[static_cast<size_t>(StateKind::kExpAvg)].host,
            StateLimit(MiB(1536)));
  EXPECT_EQ((*limits)[static_cast<size_t>(StateKind::kGrad)].host,
            StateLimit(Bytes(0)));
  for (const StateLimits& of_state : *limits) {
    EXPECT_EQ(of_state.nvme, StateLimit(1.0));
  }
}

TEST(PlacementFlagsTest, RulesKeepTheirOrderAndConditions) {
  const auto rules = ParsePlaceFlag(
      {"nvme:*.experts.*,state=exp_avg,type=bf16,least=1MiB,most=2GiB",
       "device:*", "host:a:b,state=all"});
  ASSERT_THAT(rules, IsOk());
  ASSERT_EQ(rules->size(), 3u);
  const PlacementRule& experts = rules->front();
  EXPECT_EQ(experts.tier, Tier::kNvme);
  EXPECT_EQ(experts.glob, "*.experts.*");
  EXPECT_EQ(experts.state, StateKind::kExpAvg);
  EXPECT_EQ(experts.dtype, DType::kBF16);
  EXPECT_EQ(experts.least, MiB(1));
  EXPECT_EQ(experts.most, GiB(2));
  EXPECT_EQ((*rules)[1].most, std::nullopt);
  EXPECT_EQ((*rules)[2].glob, "a:b");
  EXPECT_EQ((*rules)[2].state, std::nullopt);
}

TEST(PlacementFlagsTest, SaysWhatIsWrongWithAValue) {
  for (const auto& [value, message] :
       std::vector<std::pair<std::string, std::string>>{
           {"param", "write it as STATE@TIER=AMOUNT"},
           {"param@device", "write it as STATE@TIER=AMOUNT"},
           {"parm@device=1%", "no state \"parm\"; did you mean param?"},
           {"param@devise=1%", "no tier \"devise\"; did you mean device?"},
           {"param@device=101%", "no percentage from 0% to 100%"},
           {"param@device=-1%", "does not begin with a digit"},
           {"param@device=5G", "5G"},
           {"all@device=5GiB", "of each state, or of all together?"}}) {
    EXPECT_THAT(ParseLimitFlag({value}),
                StatusIs(ErrorCode::kInvalidArgument,
                         AllOf(HasSubstr("--limit \"" + value + "\": "),
                               HasSubstr(message))));
  }
  EXPECT_THAT(ParseLimitFlag({"param@host=1%", "all@host=2%"}),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("param on host was given a limit before")));
  for (const auto& [value, message] :
       std::vector<std::pair<std::string, std::string>>{
           {"*.weight", "write it as TIER:GLOB"},
           {"disk:*", "no tier \"disk\"; known are device, host, nvme"},
           {"nvme:*,size=1", "no condition \"size\""},
           {"nvme:*,least", "no condition \"least\""},
           {"nvme:*,type=f17", "no type \"f17\""},
           {"nvme:*,least=1G", "1G"}}) {
    EXPECT_THAT(ParsePlaceFlag({value}),
                StatusIs(ErrorCode::kInvalidArgument,
                         AllOf(HasSubstr("--place \"" + value + "\": "),
                               HasSubstr(message))));
  }
}

}  // namespace
}  // namespace castor
