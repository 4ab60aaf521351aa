// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/hwloc_topology.h"

#include "gtest/gtest.h"
#include "tests/offload/internal/pretended_machine.h"

namespace castor::internal {
namespace {

TEST(HwlocTopologyTest, HasNodesCoresAndHardwareThreadsOnly) {
  const HwlocTopology topology = MachineHwlocTopology();
  ASSERT_NE(topology, nullptr);
  EXPECT_GE(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE), 1);
  EXPECT_GE(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE), 1);
  EXPECT_GE(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PU), 1);
  EXPECT_EQ(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_L3CACHE), 0);
}

TEST(HwlocTopologyTest, LooksOnceUnlessItForgets) {
  const HwlocTopology before = MachineHwlocTopology();
  EXPECT_EQ(MachineHwlocTopology(), before);
  {
    const PretendedMachine machine("node:3 pu:1", /*real=*/false);
    const HwlocTopology other = MachineHwlocTopology();
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(hwloc_get_nbobjs_by_type(other.get(), HWLOC_OBJ_NUMANODE), 3);
    EXPECT_EQ(MachineHwlocTopology(), other);
  }
  EXPECT_NE(MachineHwlocTopology(), before);
  // Who has one keeps it.
  EXPECT_GE(hwloc_get_nbobjs_by_type(before.get(), HWLOC_OBJ_PU), 1);
}

}  // namespace
}  // namespace castor::internal
