// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/rank_devices.h"

#include <vector>

#include "chunk/base/clock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/simulated_link.h"
#include "offload/slab.h"
#include "tests/support/status_matchers.h"

namespace castor::gpt {
namespace {

TEST(RankDevicesTest, EveryRankHasTheMachinesLinksForItself) {
  ThreadPool pool(2);
  TierModel machine;
  machine.host_to_device = LinkModel{1'000'000'000, 2'000'000};
  RankDevices devices(machine, 2, KiB(64), &pool);
  EXPECT_EQ(devices.device(1)->facts().total, KiB(64));
  Device& device = *devices.device(0);
  const Slab host = *device.MakeHostSlab(KiB(4), {});
  const Slab memory = *device.MakeSlab(KiB(64));
  const auto lane = device.MakeLane("copies");
  const SteadyClock clock;
  const int64_t begin = clock.NowNs();
  device.Copy(*lane, memory.data(), host.data(), KiB(4), CopyKind::kToDevice);
  ASSERT_THAT(lane->Drain(), IsOk());
  EXPECT_GE(clock.NowNs() - begin, 2'004'096);
  // Of a link that is not known only the use is counted.
  device.Copy(*lane, host.data(), memory.data(), KiB(1), CopyKind::kFromDevice);
  ASSERT_THAT(lane->Drain(), IsOk());
  const std::vector<RankLinks> links = devices.links();
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0].to_device, (LinkUse{1, KiB(4), 4096}));
  EXPECT_EQ(links[0].from_device, (LinkUse{1, KiB(1), 0}));
  EXPECT_EQ(links[1].to_device, LinkUse());
}

}  // namespace
}  // namespace castor::gpt
