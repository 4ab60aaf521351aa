// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/internal/machine_topology.h"

#include <hwloc.h>

#include <string>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "offload/internal/hwloc_topology.h"
#include "tests/support/byte_mutator.h"
#include "tests/support/test_seed.h"

namespace castor::internal {
namespace {

// The XML of a machine that hwloc makes up.
std::string XmlOf(const char* description) {
  hwloc_topology_t raw = nullptr;
  EXPECT_EQ(hwloc_topology_init(&raw), 0);
  const HwlocTopology topology(raw, hwloc_topology_destroy);
  EXPECT_EQ(hwloc_topology_set_synthetic(raw, description), 0);
  EXPECT_EQ(hwloc_topology_load(raw), 0);
  char* buffer = nullptr;
  int length = 0;
  EXPECT_EQ(hwloc_topology_export_xmlbuffer(raw, &buffer, &length, 0), 0);
  const std::string xml(buffer);
  hwloc_free_xmlbuffer(raw, buffer);
  return xml;
}

TEST(MachineTopologyTest, ReadsThisMachine) {
  const Result<MachineTopology> machine = ReadMachineTopology();
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_GE(machine->packages, 1);
  EXPECT_GE(machine->cores, 1);
  EXPECT_GE(machine->threads, machine->cores);
  ASSERT_FALSE(machine->nodes.empty());
  EXPECT_GT(machine->memory(), MiB(64));
}

TEST(MachineTopologyTest, ReadsWhatHwlocWroteElsewhere) {
  const Result<MachineTopology> machine = ParseMachineTopology(XmlOf(
      "pack:2 [numa(memory=8589934592)] l3:1(size=33554432) core:4 pu:2"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->packages, 2);
  EXPECT_EQ(machine->cores, 8);
  EXPECT_EQ(machine->threads, 16);
  ASSERT_EQ(machine->nodes.size(), 2u);
  EXPECT_EQ(machine->nodes[1].number, 1);
  EXPECT_EQ(machine->nodes[1].memory, GiB(8));
  EXPECT_EQ(machine->nodes[1].cores, 4);
  EXPECT_EQ(machine->memory(), GiB(16));
  ASSERT_EQ(machine->caches.size(), 1u);
  EXPECT_EQ(machine->caches[0].name, "L3");
  EXPECT_EQ(machine->caches[0].size, MiB(32));
  EXPECT_EQ(machine->caches[0].count, 2);
  EXPECT_TRUE(machine->devices.empty());
}

TEST(MachineTopologyTest, AMachineWithoutCoresHasOneForEachThread) {
  const Result<MachineTopology> machine =
      ParseMachineTopology(XmlOf("pack:1 pu:6"));
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->cores, 6);
  EXPECT_EQ(machine->nodes[0].cores, 6);
}

TEST(MachineTopologyTest, SaysWhatDevicesAreNear) {
  std::string xml = XmlOf("pack:2 [numa(memory=1073741824)] pu:1");
  // A GPU and a drive below the second package.
  const size_t end = xml.rfind("</object>", xml.rfind("</object>") - 1);
  ASSERT_NE(end, std::string::npos);
  xml.insert(end, R"(
    <object type="Bridge" gp_index="101" bridge_type="0-1" depth="0" bridge_pci="0000:[80-ff]">
      <object type="PCIDev" gp_index="102" pci_busid="0000:81:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.015385"/>
      <object type="PCIDev" gp_index="103" pci_busid="0000:82:00.0" pci_type="0108 [144d:a80a] [144d:a801] 00" pci_link_speed="7.876923">
        <object type="OSDev" gp_index="104" name="nvme1n1" subtype="Disk" osdev_type="0"/>
      </object>
    </object>)");
  const Result<MachineTopology> machine = ParseMachineTopology(xml);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_EQ(machine->devices.size(), 2u) << xml;
  EXPECT_EQ(machine->devices[0].bus_id, "0000:81:00.0");
  EXPECT_TRUE(machine->devices[0].is_gpu());
  EXPECT_EQ(machine->devices[0].vendor, 0x10de);
  EXPECT_EQ(machine->devices[0].node, 1);
  EXPECT_EQ(machine->devices[0].name, "");
  EXPECT_TRUE(machine->devices[1].is_nvme());
  EXPECT_EQ(machine->devices[1].name, "nvme1n1");
}

TEST(MachineTopologyTest, RefusesWhatIsNoTopology) {
  for (const char* text : {"", "hello", "<topology", "{}"}) {
    EXPECT_EQ(ParseMachineTopology(text).status().code(), ErrorCode::kMalformed)
        << text;
  }
}

// hwloc itself crashes on one in ten of these.
TEST(MachineTopologyTest, DamageEndsInATopologyOrInMalformed) {
  const std::string xml = XmlOf("pack:2 [numa(memory=1073741824)] core:2 pu:1");
  ByteMutator mutator(TestSeed(1),
                      {"<object type=\"PU\"", "</object>", "0x", "\"", ">",
                       "NUMANode", "cpuset=\"0xffffffff\"", "4294967295"});
  int read = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string text = mutator.Mutate(xml);
    const Result<MachineTopology> machine = ParseMachineTopology(text);
    read += machine.ok() ? 1 : 0;
    if (!machine.ok()) {
      ASSERT_EQ(machine.status().code(), ErrorCode::kMalformed) << text;
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace castor::internal
