// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Twins without bytes: what they queue takes its time, and no page comes.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/device.h"
#include "offload/host_passes.h"
#include "offload/lane.h"
#include "offload/lanes/solo_executor.h"
#include "offload/memory/address_slab.h"
#include "offload/memory/slab.h"
#include "offload/twin/simulated_device.h"
#include "offload/twin/simulated_host.h"
#include "placement/tier_model.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

// Of the slab's pages, those that are in memory.
int64_t PagesOf(const Slab& slab) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> there(
      static_cast<size_t>((slab.size().count() + page - 1) / page));
  EXPECT_EQ(mincore(slab.data(), static_cast<size_t>(slab.size().count()),
                    there.data()),
            0);
  return std::count_if(there.begin(), there.end(),
                       [](unsigned char in) { return (in & 1) != 0; });
}

TEST(AddressSlabTest, HasNoPagesUntilSomebodyTouchesThem) {
  // More than a machine has.
  Result<Slab> slab = MakeAddressSlab(Tier::kHost, GiB(1024));
  ASSERT_THAT(slab, IsOk());
  EXPECT_EQ(slab->tier(), Tier::kHost);
  slab->data()[GiB(700).count()] = std::byte{7};
  EXPECT_EQ(slab->data()[GiB(700).count() + 1], std::byte{0});
  slab->pages()->Loosen();
  slab->pages()->Settle();
  EXPECT_FALSE(slab->pages()->locked());
  EXPECT_THAT(MakeAddressSlab(Tier::kDevice, Bytes(0)), IsOk());
}

TEST(DryTwinTest, OperationsTakeTheirTimeAndTouchNothing) {
  constexpr LinkModel kLink = {1'000'000'000, 10};
  SoloExecutor world;
  for (const bool dry : {false, true}) {
    const int64_t begin_ns = world.NowNs();
    SimulatedDevice device({.capacity = MiB(8),
                            .links = {.to_device = kLink,
                                      .from_device = kLink,
                                      .within_device = kLink},
                            .executor = &world,
                            .timer = &world,
                            .dry = dry});
    SimulatedHost host({.optimizer = RateModel{500'000'000},
                        .memory = RateModel{500'000'000},
                        .dry = dry},
                       &world);
    Result<Slab> memory = device.MakeSlab(MiB(1));
    Result<Slab> of_host = device.MakeHostSlab(MiB(1), {.lock = false});
    ASSERT_THAT(memory, IsOk());
    ASSERT_THAT(of_host, IsOk());
    const auto lane = device.MakeLane("lane");
    const Bytes size = KiB(256);
    std::byte* const data = memory->data();
    device.Copy(*lane, data, of_host->data(), size, CopyKind::kToDevice);
    device.Copy(*lane, of_host->data(), data, size, CopyKind::kFromDevice);
    device.Fill(*lane, data, size, std::byte{1});
    device.AddInto(*lane, data, data + size.count(), DType::kF32,
                   Elements(1000));
    device.CopyIf(*lane, data, of_host->data(), size, CopyKind::kToDevice,
                  [] { return false; });
    int passes = 0;
    for (const HostPass pass : {HostPass::kUpdate, HostPass::kMemory}) {
      host.Queue(*lane, pass, size, [&passes] {
        ++passes;
        return OkStatus();
      });
    }
    EXPECT_THAT(lane->Drain(), IsOk());
    // Two copies, a fill, a sum of 12,000 bytes, and two passes at half speed.
    EXPECT_EQ(world.NowNs() - begin_ns,
              7 * size.count() + 12'000 + 4 * kLink.latency_ns);
    EXPECT_EQ(passes, dry ? 0 : 2);
    EXPECT_EQ(PagesOf(*memory) > 0, !dry);
    EXPECT_EQ(PagesOf(*of_host) > 0, !dry);
    // The device has no more than its own.
    EXPECT_THAT(device.MakeSlab(MiB(8)), StatusIs(ErrorCode::kUnavailable));
  }
}

}  // namespace
}  // namespace castor
