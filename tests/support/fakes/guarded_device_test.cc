// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The contract of every device, and the guard itself.

#include "tests/support/fakes/guarded_device.h"

#include <memory>
#include <string>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lanes/executor.h"
#include "offload/memory/slab.h"
#include "offload/twin/simulated_device.h"
#include "tests/support/contracts/device_contract.h"

namespace castor {
namespace {

class Guarded final : public DeviceUnderTest {
 public:
  Device& device() override { return guarded_; }
  bool Break() override {
    twin_.InjectFailure(Unavailable("the device fell off the bus"));
    return true;
  }

 private:
  ThreadPool executor_{2};
  SimulatedDevice twin_{{.capacity = MiB(64), .executor = &executor_}};
  GuardedDevice guarded_{&twin_};
};

INSTANTIATE_TEST_SUITE_P(
    Guarded, DeviceContract,
    testing::Values(DeviceBackend{
        "Twin", [](std::string*) { return std::make_unique<Guarded>(); }}),
    DeviceBackendName());

TEST(GuardedDeviceDeathTest, WhoTouchesItsMemoryOnTheHostEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Guarded under_test;
  Slab slab = *under_test.device().MakeSlab(KiB(4));
  EXPECT_FALSE(under_test.device().facts().host_addressable);
  EXPECT_DEATH(*const_cast<volatile std::byte*>(slab.data()) = std::byte{1},
               "");
}

}  // namespace
}  // namespace castor
