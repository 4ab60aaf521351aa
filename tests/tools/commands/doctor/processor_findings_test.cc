// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/processor_findings.h"

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/commands/doctor/fake_machine.h"

namespace castor {
namespace {

class ProcessorFindingsTest : public testing::Test {
 protected:
  Finding Find(std::string_view id, const std::string& file = "") const {
    std::vector<Finding> findings = ProcessorFindings(machine_);
    for (Finding& one : TopologyFindings(machine_, machine_.topology, file)) {
      findings.push_back(std::move(one));
    }
    const Finding finding = Of(findings, id);
    EXPECT_TRUE(IsComplete(finding)) << finding.fact;
    return finding;
  }
  Severity SeverityOf(std::string_view id) const { return Find(id).severity; }

  const TempDir dir_;
  FakeMachine machine_{dir_.path()};
};

TEST_F(ProcessorFindingsTest, NarrowVectorsHurt) {
  EXPECT_EQ(SeverityOf("instruction_set"), Severity::kOk);
  EXPECT_EQ(Find("instruction_set").fact, "kernels run with AVX3");
  machine_.instructions = {.name = "SSE4", .wide = false};
  EXPECT_EQ(SeverityOf("instruction_set"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("instruction_set").fact, "SSE4"));
}

TEST_F(ProcessorFindingsTest, AQuotaBelowTheCoresHurts) {
  EXPECT_EQ(Find("cpu_quota").fact, "8 cores, no quota");
  machine_.Put("/proc/self/cgroup", "0::/job\n");
  machine_.Put("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  const Finding finding = Find("cpu_quota");
  EXPECT_EQ(finding.severity, Severity::kHurts);
  EXPECT_TRUE(Has(finding.fact, "gives the time of 2.5"));
  EXPECT_TRUE(Has(finding.consequence, "2 threads"));
  machine_.Put("/sys/fs/cgroup/job/cpu.max", "800000 100000\n");
  EXPECT_EQ(SeverityOf("cpu_quota"), Severity::kOk);
}

TEST_F(ProcessorFindingsTest, BindingThatIsRefusedHurtsWhereThereAreNodes) {
  machine_.bind_refused = "Operation not permitted";
  EXPECT_EQ(SeverityOf("numa"), Severity::kOk);  // one node: nothing to bind
  machine_.topology.nodes.push_back(
      {.number = 1, .memory = GiB(64), .cores = 8});
  const Finding finding = Find("numa");
  EXPECT_EQ(finding.severity, Severity::kHurts);
  EXPECT_TRUE(Has(finding.fact, "node 0 is refused: Operation not permitted"));
  EXPECT_TRUE(Has(finding.fix, "SYS_NICE"));
  // Of another machine it cannot be known.
  EXPECT_EQ(Find("numa", "other.xml").severity, Severity::kOk);
  EXPECT_TRUE(Has(Find("numa", "other.xml").fact, "of other.xml"));
  machine_.bind_refused = "";
  EXPECT_EQ(SeverityOf("numa"), Severity::kOk);
  EXPECT_TRUE(Has(Find("numa").fact, "memory may be bound"));
}

TEST_F(ProcessorFindingsTest, SaysWhatLiesNearWhichNode) {
  machine_.topology.devices = {{.bus_id = "0000:3b:00.0",
                                .vendor = 0x10de,
                                .class_id = 0x0302,
                                .name = "",
                                .node = 1},
                               {.bus_id = "0000:01:00.0",
                                .vendor = 0x144d,
                                .class_id = 0x0108,
                                .name = "nvme0n1",
                                .node = -1}};
  EXPECT_TRUE(Has(Find("numa").fact,
                  "; GPU 0000:3b:00.0 near node 1; NVMe drive 0000:01:00.0 "
                  "(nvme0n1)"));
}

TEST_F(ProcessorFindingsTest, CoresWithoutMemoryHurt) {
  machine_.topology.nodes.push_back(
      {.number = 1, .memory = GiB(64), .cores = 8});
  EXPECT_EQ(SeverityOf("numa_memory"), Severity::kOk);
  machine_.topology.nodes[1].memory = Bytes(0);
  const Finding finding = Find("numa_memory");
  EXPECT_EQ(finding.severity, Severity::kHurts);
  EXPECT_EQ(finding.fact,
            "node 0 has 64 GiB for 8 cores and node 1 has 0 B for 8 cores");
  EXPECT_TRUE(Has(finding.consequence, "cores of node 1 work"));
  // Memory without cores is an expansion, not a defect.
  machine_.topology.nodes[1] = {.number = 1, .memory = GiB(8), .cores = 0};
  EXPECT_EQ(SeverityOf("numa_memory"), Severity::kOk);
}

}  // namespace
}  // namespace castor
