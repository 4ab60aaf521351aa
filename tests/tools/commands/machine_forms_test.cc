// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/machine_forms.h"

#include "gtest/gtest.h"

namespace castor {
namespace {

internal::MachineTopology Topology() {
  internal::MachineTopology topology;
  topology.packages = 1;
  topology.cores = 2;
  topology.threads = 4;
  topology.nodes = {{.number = 0, .memory = GiB(24), .cores = 2}};
  topology.caches = {{.name = "L1d", .size = KiB(32), .count = 2},
                     {.name = "L3", .size = MiB(32), .count = 1}};
  topology.devices = {{.bus_id = "0000:3b:00.0",
                       .vendor = 0x10de,
                       .class_id = 0x0302,
                       .name = "",
                       .node = -1}};
  return topology;
}

TEST(MachineFormsTest, IsOneLineForPeople) {
  EXPECT_EQ(TopologyText(Topology()),
            "1 package, 2 cores, 4 hardware threads, 1 NUMA node, 24 GiB; 2 "
            "L1d of 32 KiB and 1 L3 of 32 MiB");
}

TEST(MachineFormsTest, IsADocumentForPrograms) {
  const JsonValue json = TopologyJson(Topology());
  EXPECT_EQ(json["threads"], 4);
  EXPECT_EQ(json["memory_bytes"], int64_t{24} << 30);
  EXPECT_EQ(json["nodes"][0]["number"], 0);
  EXPECT_EQ(json["caches"][1]["size_bytes"], 32 << 20);
  EXPECT_EQ(json["devices"][0]["vendor"], "0x10de");
  EXPECT_EQ(json["devices"][0]["class"], "0x0302");
  EXPECT_TRUE(json["devices"][0]["node"].is_null());
}

}  // namespace
}  // namespace castor
