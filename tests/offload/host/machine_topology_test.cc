// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host/machine_topology.h"

#include <hwloc.h>
#include <sched.h>

#include <string>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "gtest/gtest.h"
#include "offload/host/cpu_map.h"
#include "offload/host/hwloc_topology.h"
#include "tests/offload/host/pretended_machine.h"
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
  EXPECT_EQ(machine->devices[0].class_id, 0x0302);
  EXPECT_EQ(machine->devices[0].vendor, 0x10de);
  EXPECT_EQ(machine->devices[0].node, 1);
  EXPECT_EQ(machine->devices[0].name, "");
  EXPECT_EQ(machine->devices[1].class_id, 0x0108);
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

cpu_set_t Mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  return mask;
}

TEST(CpuMapTest, HasNoMoreCoresThanTheProcessMayUseProcessors) {
  const CpuMap cpus;
  const cpu_set_t mask = Mask();
  EXPECT_GE(cpus.node_of_core().size(), 1u);
  EXPECT_LE(cpus.node_of_core().size(), static_cast<size_t>(CPU_COUNT(&mask)));
  EXPECT_GE(cpus.nodes(), 1);
  for (int node : cpus.node_of_core()) {
    EXPECT_GE(node, 0);
    EXPECT_LT(node, cpus.nodes());
  }
}

TEST(CpuMapTest, BindsToProcessorsOfTheProcessOnly) {
  const CpuMap cpus;
  const cpu_set_t before = Mask();
  for (int node = 0; node < cpus.nodes(); ++node) {
    std::thread([&] {
      EXPECT_EQ(cpus.BindCallingThread(node), "");
      const cpu_set_t bound = Mask();
      EXPECT_GE(CPU_COUNT(&bound), 1);
      cpu_set_t both;
      CPU_AND(&both, &before, &bound);
      EXPECT_TRUE(CPU_EQUAL(&both, &bound));
    }).join();
  }
  const cpu_set_t after = Mask();
  EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "another thread was bound";
}

TEST(CpuMapTest, FindsNoNodeWhereThereIsOnlyOne) {
  const CpuMap cpus;
  std::vector<char> memory(1 << 20, 1);
  const int node = cpus.NodeOf(memory.data());
  if (cpus.nodes() == 1) {
    EXPECT_EQ(node, -1);
  } else {
    EXPECT_LT(node, cpus.nodes());
  }
}

TEST(CpuMapTest, CountsCoresNotHardwareThreadsByNode) {
  const PretendedMachine machine("node:2 core:3 pu:2", /*real=*/false);
  const CpuMap cpus;
  EXPECT_EQ(cpus.nodes(), 2);
  EXPECT_EQ(cpus.node_of_core(), (std::vector<int>{0, 0, 0, 1, 1, 1}));
}

TEST(CpuMapTest, BindsToTheCoresOfOneNode) {
  const cpu_set_t mask = Mask();
  if (!CPU_ISSET(0, &mask) || !CPU_ISSET(1, &mask)) {
    GTEST_SKIP() << "needs processors 0 and 1";
  }
  const PretendedMachine machine("node:2 core:2 pu:1(indexes=0,2,1,3)",
                                 /*real=*/true);
  const CpuMap cpus;
  ASSERT_EQ(cpus.node_of_core(), (std::vector<int>{0, 1}));
  for (int node : {0, 1}) {
    std::thread([&] {
      EXPECT_EQ(cpus.BindCallingThread(node), "");
      const cpu_set_t bound = Mask();
      EXPECT_EQ(CPU_COUNT(&bound), 1);
      EXPECT_TRUE(CPU_ISSET(node, &bound));
    }).join();
  }
  const std::vector<char> memory(1 << 20, 1);
  EXPECT_EQ(cpus.NodeOf(memory.data() + (1 << 19)), 0) << "the kernel has one";
}

// In a process of its own, confined to one processor.
[[noreturn]] void ExitWithCoresOfOneProcessor() {
  const cpu_set_t all = Mask();
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) std::_Exit(100);
  std::_Exit(static_cast<int>(CpuMap().node_of_core().size()));
}

TEST(CpuMapDeathTest, HasTheCoresOfTheAffinityMask) {
  EXPECT_EXIT(ExitWithCoresOfOneProcessor(), testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace castor::internal
