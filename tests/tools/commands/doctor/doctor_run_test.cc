// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/doctor_run.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/commands/doctor/fake_machine.h"

namespace castor {
namespace {

// Two packages of eight cores, as hwloc wrote it.
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

class DoctorRunTest : public testing::Test {
 protected:
  Result<DoctorReport> Run() { return RunDoctor(request_, machine_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_.File(name)) << text;
    return dir_.File(name);
  }

  const TempDir dir_;
  FakeMachine machine_{dir_.path()};
  DoctorRequest request_;
};

TEST_F(DoctorRunTest, FindsNothingWrongWithAGoodMachine) {
  request_.nvme = {"/mnt/a", "/mnt/b:10GiB"};
  const DoctorReport report = Run().value();
  EXPECT_EQ(report.topology->cores, 8);
  EXPECT_GE(report.findings.size(), 20u);
  for (const Finding& finding : report.findings) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.id;
  }
}

TEST_F(DoctorRunTest, TakesATopologyFileInPlaceOfTheMachine) {
  request_.topology = Write("other.xml", kXml);
  const DoctorReport report = Run().value();
  EXPECT_EQ(report.topology->packages, 2);
  EXPECT_EQ(Of(report.findings, "numa").severity, Severity::kOk);
  EXPECT_TRUE(Has(Of(report.findings, "numa").fact, "2 nodes in 2 packages"));
  const Finding memory = Of(report.findings, "numa_memory");
  EXPECT_EQ(memory.severity, Severity::kHurts);
  EXPECT_EQ(memory.fact,
            "node 0 has 8 GiB for 1 core and node 1 has 1 GiB "
            "for 1 core");
}

TEST_F(DoctorRunTest, RefusesAFileThatIsNoTopology) {
  request_.topology = dir_.File("none.xml");
  EXPECT_EQ(Run().status().code(), ErrorCode::kInvalidArgument);
  request_.topology = Write("bad.xml", "{\"not\": \"xml\"}");
  EXPECT_EQ(Run().status().code(), ErrorCode::kMalformed);
  EXPECT_TRUE(Has(Run().status().message(), "bad.xml"));
  EXPECT_TRUE(Has(Run().status().message(), "lstopo FILE.xml"));
}

TEST_F(DoctorRunTest, AMachineThatDoesNotShowItsTopologyHurts) {
  machine_.no_topology = Unavailable("hwloc cannot read it");
  const DoctorReport report = Run().value();
  EXPECT_FALSE(report.topology.has_value());
  EXPECT_EQ(Of(report.findings, "numa").severity, Severity::kHurts);
}

TEST_F(DoctorRunTest, RefusesAFolderGivenTwice) {
  request_.nvme = {"/mnt/a", "/mnt/a"};
  EXPECT_EQ(Run().status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace castor
