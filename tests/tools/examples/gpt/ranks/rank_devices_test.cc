// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/ranks/rank_devices.h"

#include <fcntl.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "chunk/base/clock.h"
#include "gtest/gtest.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/slab.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/unique_fd.h"
#include "offload/twin/simulated_link.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

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
  EXPECT_EQ(devices.links(0).to_device, (LinkUse{1, KiB(4), 4096}));
  EXPECT_EQ(devices.links(0).from_device, (LinkUse{1, KiB(1), 0}));
  EXPECT_EQ(devices.links(1).to_device, LinkUse());
  EXPECT_EQ(devices.nvme_queue(0), nullptr) << "nothing is known of the drive";
}

TEST(RankDevicesTest, EveryRankHasTheMachinesDriveForItself) {
  ThreadPool pool(1);
  TierModel machine;
  machine.nvme_write = LinkModel{1'000'000'000, 1'000'000};
  RankDevices devices(machine, 2, KiB(64), &pool);
  const TempDir dir;
  const UniqueFd fd(
      ::open(dir.File("data").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  std::vector<std::byte> bytes(4096);
  const SteadyClock clock;
  const int64_t begin = clock.NowNs();
  const EventSource source;
  const std::unique_ptr<IoQueue> queue = devices.nvme_queue(1)(0);
  queue->Submit({.direction = IoDirection::kWrite,
                 .fd = fd.get(),
                 .offset = Bytes(0),
                 .data = bytes.data(),
                 .size = KiB(4),
                 .done = [source](const Status& s) { source.Complete(s); }});
  EXPECT_THAT(source.event().Wait(), IsOk());
  EXPECT_GE(clock.NowNs() - begin, 1'004'096);
  EXPECT_EQ(devices.links(1).nvme_write, (LinkUse{1, KiB(4), 4096}));
  EXPECT_EQ(devices.links(0).nvme_write, LinkUse());
}

}  // namespace
}  // namespace castor::gpt
