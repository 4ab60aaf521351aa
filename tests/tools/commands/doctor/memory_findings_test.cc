// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/memory_findings.h"

#include <sys/resource.h>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/commands/doctor/fake_machine.h"

namespace castor {
namespace {

class MemoryFindingsTest : public testing::Test {
 protected:
  // The finding of that id, of the machine as it is now.
  Finding Find(std::string_view id) const {
    const Finding finding = Of(MemoryFindings(machine_), id);
    EXPECT_TRUE(IsComplete(finding)) << finding.fact;
    return finding;
  }
  Severity SeverityOf(std::string_view id) const { return Find(id).severity; }
  void SetMeminfo(const std::string& key, int64_t value) {
    machine_.meminfo[key] = value;
    machine_.SetMeminfo(machine_.meminfo);
  }

  const TempDir dir_;
  FakeMachine machine_{dir_.path()};
};

TEST_F(MemoryFindingsTest, NothingIsWrongWithAGoodMachine) {
  const std::vector<Finding> findings = MemoryFindings(machine_);
  EXPECT_EQ(findings.size(), 6u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.id;
    EXPECT_TRUE(IsComplete(finding)) << finding.id;
  }
}

TEST_F(MemoryFindingsTest, ALimitOfLockedMemoryHurtsBelowWhatThereIs) {
  machine_.limits[RLIMIT_MEMLOCK] = 8 << 20;
  const Finding low = Find("memlock");
  EXPECT_EQ(low.severity, Severity::kHurts);
  EXPECT_EQ(low.fact, "8 MiB may be locked");
  EXPECT_TRUE(Has(low.fix, "ulimit -l unlimited"));
  machine_.limits[RLIMIT_MEMLOCK] = int64_t{61} << 30;
  EXPECT_EQ(SeverityOf("memlock"), Severity::kOk);
  // To CAP_IPC_LOCK no limit applies.
  machine_.limits[RLIMIT_MEMLOCK] = 8 << 20;
  machine_.Put("/proc/self/status", "CapEff:\t000001ffffffffff\n");
  EXPECT_EQ(Find("memlock").fact, "no limit");
  EXPECT_EQ(SeverityOf("memlock"), Severity::kOk);
}

TEST_F(MemoryFindingsTest, ACgroupBelowTheMachineHurts) {
  machine_.Put("/proc/self/cgroup", "0::/job\n");
  machine_.Put("/sys/fs/cgroup/job/memory.max", "8589934592\n");
  machine_.Put("/sys/fs/cgroup/job/memory.current", "1073741824\n");
  const Finding finding = Find("memory");
  EXPECT_EQ(finding.severity, Severity::kHurts);
  EXPECT_TRUE(Has(finding.fact, "7 GiB available of 64 GiB, limited by "));
  EXPECT_TRUE(Has(finding.fact, "/job/memory.max"));
  EXPECT_TRUE(Has(finding.consequence, "60 GiB"));
  // One that allows all of the machine does not.
  machine_.Put("/sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_EQ(SeverityOf("memory"), Severity::kOk);
}

TEST_F(MemoryFindingsTest, TooLittleMemoryBlocks) {
  SetMeminfo("MemAvailable", 200 << 10);
  const Finding finding = Find("memory");
  EXPECT_EQ(finding.severity, Severity::kBlocks);
  EXPECT_TRUE(Has(finding.fact, "200 MiB available"));
  SetMeminfo("MemAvailable", 300 << 10);
  EXPECT_EQ(SeverityOf("memory"), Severity::kOk);
  machine_.Remove("/proc/meminfo");
  EXPECT_EQ(SeverityOf("memory"), Severity::kHurts);
}

TEST_F(MemoryFindingsTest, HugePagesThatAreOffHurt) {
  const char kSetting[] = "/sys/kernel/mm/transparent_hugepage/enabled";
  machine_.Put(kSetting, "always madvise [never]\n");
  EXPECT_EQ(SeverityOf("huge_pages"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("huge_pages").fix, "echo madvise"));
  machine_.Put(kSetting, "[always] madvise never\n");
  EXPECT_EQ(SeverityOf("huge_pages"), Severity::kOk);
  machine_.Remove(kSetting);
  EXPECT_EQ(SeverityOf("huge_pages"), Severity::kHurts);
}

TEST_F(MemoryFindingsTest, PagesThatAreSetAsideAndFreeHurt) {
  SetMeminfo("HugePages_Total", 1024);
  EXPECT_EQ(SeverityOf("hugetlb"), Severity::kOk);  // others use them all
  SetMeminfo("HugePages_Free", 512);
  const Finding finding = Find("hugetlb");
  EXPECT_EQ(finding.severity, Severity::kHurts);
  EXPECT_EQ(finding.fact,
            "2 GiB set aside as 1024 pages of 2 MiB, 512 of them free");
  EXPECT_TRUE(Has(finding.consequence, "1 GiB"));
}

TEST_F(MemoryFindingsTest, StrictOvercommitHurts) {
  machine_.Put("/proc/sys/vm/overcommit_memory", "2\n");
  const Finding finding = Find("overcommit");
  EXPECT_EQ(finding.severity, Severity::kHurts);
  EXPECT_TRUE(Has(finding.fact, "= 2: 2 GiB may still be mapped"));
  machine_.Put("/proc/sys/vm/overcommit_memory", "1\n");
  EXPECT_EQ(SeverityOf("overcommit"), Severity::kOk);
}

TEST_F(MemoryFindingsTest, SwapHurtsWhatCannotBeLocked) {
  SetMeminfo("SwapTotal", 8 << 20);
  SetMeminfo("SwapFree", 6 << 20);
  EXPECT_EQ(SeverityOf("swap"), Severity::kOk);
  machine_.limits[RLIMIT_MEMLOCK] = 64 << 10;
  const Finding finding = Find("swap");
  EXPECT_EQ(finding.severity, Severity::kHurts);
  EXPECT_EQ(finding.fact, "8 GiB, of which 2 GiB used");
}

}  // namespace
}  // namespace castor
