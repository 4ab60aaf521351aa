// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/hwloc_topology.h"

#include "gtest/gtest.h"

namespace castor::internal {
namespace {

TEST(HwlocTopologyTest, HasNodesAndHardwareThreads) {
  const HwlocTopology topology = LoadHwlocTopology(HwlocCores::kLeaveOut);
  ASSERT_NE(topology, nullptr);
  EXPECT_GE(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE), 1);
  EXPECT_GE(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PU), 1);
  EXPECT_EQ(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE), 0);
  EXPECT_EQ(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_L3CACHE), 0);
}

TEST(HwlocTopologyTest, KeepsCoresWhereAskedTo) {
  const HwlocTopology topology = LoadHwlocTopology(HwlocCores::kKeep);
  ASSERT_NE(topology, nullptr);
  EXPECT_GE(hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE), 1);
}

}  // namespace
}  // namespace castor::internal
