// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/raises_text.h"

#include <vector>

#include "chunk/base/budget_raise.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RaisesTextTest, NamesEachRaiseWithSizesThatAreEnough) {
  const BudgetRaise device = RaiseOf(Tier::kDevice, MiB(3) + Bytes(1));
  const BudgetRaise host = RaiseOf(Tier::kHost, KiB(1));
  const BudgetRaise nvme = RaiseOf(Tier::kNvme, GiB(2));
  EXPECT_EQ(RaisesText({}), "");
  EXPECT_EQ(RaisesText(std::vector{device, host, nvme}),
            "raise the device budget by 3.01 MiB, or raise the host budget by "
            "1024 bytes, or raise the NVMe size by 2 GiB");
  EXPECT_EQ(RaisesText(std::vector{nvme}, /*has_nvme=*/false),
            "give an NVMe directory with 2 GiB");
  EXPECT_EQ(RaisesText(std::vector{device, BudgetRaise{KiB(2), KiB(1), {}}}),
            "raise the device budget by 3.01 MiB, or raise both, the device "
            "budget by 2048 bytes and the host budget by 1024 bytes");
  EXPECT_EQ(RaisesText(std::vector{BudgetRaise{KiB(1), KiB(2), KiB(3)}}),
            "raise all three, the device budget by 1024 bytes, the host budget "
            "by 2048 "
            "bytes and the NVMe size by 3072 bytes");
}

TEST(DoesNotFitTest, SaysWhyAndWhatWouldDoInWordsAndNumbers) {
  const BudgetRaise raise = RaiseOf(Tier::kHost, KiB(1));
  const Status refused = DoesNotFit("it is full", {raise}, "or use less");
  EXPECT_EQ(refused.code(), ErrorCode::kInfeasible);
  EXPECT_EQ(refused.message(),
            "it is full; raise the host budget by 1024 bytes; or use less");
  EXPECT_THAT(refused.raises(), ElementsAre(raise));
  EXPECT_THAT(refused.WithContext("here").raises(), ElementsAre(raise));
  const Status nothing = DoesNotFit("it is full", {}, "use less");
  EXPECT_EQ(nothing.message(), "it is full; use less");
  EXPECT_THAT(nothing.raises(), IsEmpty());
  EXPECT_THAT(OkStatus().raises(), IsEmpty());
  EXPECT_THAT(OkStatus().WithRaises({raise}), IsOk());
}

}  // namespace
}  // namespace castor
