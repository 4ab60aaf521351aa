// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/home_limits.h"

#include <cstddef>
#include <optional>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST(HomeLimitsTest, AreOfTheStatesThatHaveTheseNames) {
  const StateNames sgd({"momentum_buffer"});
  const std::vector<HomeLimit> limits = {
      {"momentum_buffer", Tier::kHost, KiB(4)},
      {"param", Tier::kDevice, 0.25},
      {"all", Tier::kNvme, 1.0}};
  const auto resolved = ResolveLimits(limits, sgd);
  ASSERT_THAT(resolved, IsOk());
  EXPECT_EQ((*resolved)[3].host, StateLimit(KiB(4)));
  EXPECT_EQ((*resolved)[0].device, StateLimit(0.25));
  EXPECT_EQ((*resolved)[0].host, std::nullopt);
  for (size_t k = 0; k < kStateKinds; ++k) {
    EXPECT_EQ((*resolved)[k].nvme.has_value(), k < 4) << k;
  }
}

TEST(HomeLimitsTest, AStateThatIsNotKeptIsAMistake) {
  const std::vector<HomeLimit> limits = {{"exp_avg_qs", Tier::kHost, 0.5}};
  EXPECT_THAT(ResolveLimits(limits, StateNames()),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("a limit on host is for state \"exp_avg_qs\", "
                                 "which is none that there is with this "
                                 "optimizer; did you mean exp_avg_sq?")));
  EXPECT_THAT(ResolveLimits(limits, StateNames({"momentum_buffer"})),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("known are param, grad, master, "
                                 "momentum_buffer, all")));
}

TEST(HomeLimitsTest, AStateHasOneLimitOnATier) {
  std::vector<HomeLimit> limits;
  ASSERT_THAT(AddHomeLimit({"grad", Tier::kHost, 0.5}, &limits), IsOk());
  ASSERT_THAT(AddHomeLimit({"grad", Tier::kDevice, 0.5}, &limits), IsOk());
  for (const char* state : {"grad", "all"}) {
    EXPECT_THAT(AddHomeLimit({state, Tier::kHost, 0.1}, &limits),
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("grad on host was given a limit before")));
  }
  EXPECT_EQ(limits.size(), 2u);
  limits.push_back({"all", Tier::kHost, 0.1});
  EXPECT_THAT(ResolveLimits(limits, StateNames()),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("grad on host was given a limit before")));
}

}  // namespace
}  // namespace castor
