// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What is true of every machine that runs this, and of a topology in a file.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tools/commands/doctor/doctor.h"

namespace castor {
namespace {

// Two packages of a core each, as hwloc wrote it.
constexpr char kXml[] = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="8589934592">
        <page_type size="4096" count="2097152"/>
      </object>
      <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4"/>
    </object>
    <object type="Package" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="5">
      <object type="NUMANode" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="6" local_memory="1073741824">
        <page_type size="4096" count="262144"/>
      </object>
      <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="7"/>
    </object>
  </object>
</topology>
)";

TEST(MachineFactsTest, AsksTheMachineItself) {
  const auto facts = ReadMachineFacts({}, "");
  ASSERT_TRUE(facts.ok()) << facts.status();
  ASSERT_TRUE(facts->available && facts->without_cgroups);
  EXPECT_GT(facts->available->bytes, Bytes(0));
  EXPECT_GE(facts->cores, 1);
  ASSERT_TRUE(facts->topology.ok()) << facts->topology.status();
  EXPECT_GE(facts->topology->nodes.size(), 1u);
  EXPECT_TRUE(facts->drives.empty());
}

// A Python of a few lines, in a folder whose name a shell would cut.
TEST(MachineFactsTest, AsksThePythonThatIsNamed) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "it's a");
  const std::filesystem::path python = dir.path() / "it's a" / "python";
  std::ofstream(python) << "#!/bin/sh\n"
                           "echo 2.11.0+cu128\n"
                           "if [ \"$3\" = gpu ]; then\n"
                           "  echo 90\n"
                           "  echo NVIDIA H100\n"
                           "fi\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  setenv("CASTOR_PYTHON", python.c_str(), 1);
  TorchFacts torch = ReadTorchFacts(/*gpu=*/true);
  EXPECT_EQ(torch.version, "2.11.0+cu128");
  EXPECT_EQ(torch.gpu, "NVIDIA H100");
  EXPECT_EQ(torch.capability, 90);
  torch = ReadTorchFacts(/*gpu=*/false);
  EXPECT_EQ(torch.version, "2.11.0+cu128");
  EXPECT_EQ(torch.gpu, "");
  setenv("CASTOR_PYTHON", dir.File("none").c_str(), 1);
  EXPECT_EQ(ReadTorchFacts(/*gpu=*/true).version, "");
  unsetenv("CASTOR_PYTHON");
}

TEST(MachineFactsTest, TriesFoldersAndLeavesNothing) {
  const TempDir dir;
  std::ofstream(dir.File("file")) << "x";
  std::filesystem::create_directory(dir.path() / "good");
  const auto facts = ReadMachineFacts(
      {dir.File("good"), dir.File("none"), dir.File("file")}, "");
  ASSERT_TRUE(facts.ok()) << facts.status();
  ASSERT_EQ(facts->drives.size(), 3u);
  EXPECT_TRUE(facts->drives[0].direct.ok());
  EXPECT_FALSE(facts->drives[0].file_system.type.empty());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path() / "good"));
  EXPECT_EQ(facts->drives[1].direct.status().code(), ErrorCode::kUnavailable);
  EXPECT_FALSE(facts->drives[2].direct.ok());
  EXPECT_EQ(ReadMachineFacts({"/mnt/a", "/mnt/a"}, "").status().code(),
            ErrorCode::kInvalidArgument);
}

TEST(MachineFactsTest, TakesATopologyFileInPlaceOfTheMachine) {
  const TempDir dir;
  std::ofstream(dir.File("other.xml")) << kXml;
  const auto facts = ReadMachineFacts({}, dir.File("other.xml"));
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->topology->packages, 2);
  EXPECT_EQ(facts->topology->nodes[1].memory, GiB(1));
  EXPECT_EQ(facts->topology_file, dir.File("other.xml"));
}

}  // namespace
}  // namespace castor
