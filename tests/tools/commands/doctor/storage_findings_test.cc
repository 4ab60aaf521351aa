// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/storage_findings.h"

#include <sys/resource.h>

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/commands/doctor/fake_machine.h"

namespace castor {
namespace {

class StorageFindingsTest : public testing::Test {
 protected:
  Finding Find(std::string_view id) const {
    const Finding finding = Of(StorageFindings(machine_, drives_), id);
    EXPECT_TRUE(IsComplete(finding)) << finding.fact;
    return finding;
  }
  Severity SeverityOf(std::string_view id) const { return Find(id).severity; }

  const TempDir dir_;
  FakeMachine machine_{dir_.path()};
  std::vector<NvmeOption> drives_ = {{.directory = "/mnt/nvme0", .size = {}}};
};

TEST_F(StorageFindingsTest, NothingIsWrongWithAGoodDrive) {
  const std::vector<Finding> findings = StorageFindings(machine_, drives_);
  EXPECT_EQ(findings.size(), 6u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.id;
    EXPECT_TRUE(IsComplete(finding)) << finding.id;
  }
  EXPECT_EQ(StorageFindings(machine_, {}).size(), 2u);
  drives_.push_back({.directory = "/mnt/nvme1", .size = {}});
  EXPECT_EQ(StorageFindings(machine_, drives_).size(), 10u);
}

TEST_F(StorageFindingsTest, ARefusedIoUringHurtsAndTheFixFitsTheReason) {
  machine_.uring = Unavailable("the kernel refuses io_uring: not permitted");
  EXPECT_EQ(SeverityOf("io_uring"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("io_uring").fix, "Linux 5.6"));
  machine_.Put("/proc/self/status", "Seccomp:\t2\n");
  EXPECT_TRUE(Has(Find("io_uring").fix, "seccomp profile"));
  EXPECT_TRUE(Has(Find("io_uring").fact, "a seccomp filter is in force"));
  machine_.Put("/proc/sys/kernel/io_uring_disabled", "1\n");
  EXPECT_TRUE(Has(Find("io_uring").fix, "io_uring_group"));
  machine_.Put("/proc/sys/kernel/io_uring_disabled", "2\n");
  EXPECT_EQ(Find("io_uring").fix, "sudo sysctl kernel.io_uring_disabled=0");
  EXPECT_TRUE(Has(Find("io_uring").fact, "kernel.io_uring_disabled = 2"));
}

TEST_F(StorageFindingsTest, FewOpenFilesHurtAndVeryFewBlock) {
  machine_.limits[RLIMIT_NOFILE] = 1024;
  EXPECT_EQ(SeverityOf("open_files"), Severity::kOk);
  machine_.limits[RLIMIT_NOFILE] = 1023;
  EXPECT_EQ(SeverityOf("open_files"), Severity::kHurts);
  EXPECT_EQ(Find("open_files").fact, "at most 1,023");
  machine_.limits[RLIMIT_NOFILE] = 63;
  EXPECT_EQ(SeverityOf("open_files"), Severity::kBlocks);
}

TEST_F(StorageFindingsTest, AFolderThatCannotBeUsedBlocks) {
  machine_.folder = Unavailable("cannot use it: Permission denied");
  const Finding finding = Find("folder");
  EXPECT_EQ(finding.severity, Severity::kBlocks);
  EXPECT_EQ(finding.subject, "folder /mnt/nvme0");
  EXPECT_EQ(finding.fact, "cannot use it: Permission denied");
  EXPECT_TRUE(Has(finding.fix, "allow this user"));
  // One that is not there says nothing else.
  machine_.no_file_system = Unavailable("No such file or directory");
  EXPECT_EQ(StorageFindings(machine_, drives_).size(), 3u);
  EXPECT_EQ(Find("folder").fact, "No such file or directory");
  EXPECT_TRUE(Has(Find("folder").fix, "mkdir -p /mnt/nvme0, or"));
}

TEST_F(StorageFindingsTest, MemoryAndOverlaysAreNoDrives) {
  machine_.file_system.type = "tmpfs";
  machine_.file_system.in_memory = true;
  EXPECT_EQ(SeverityOf("file_system"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("file_system").consequence, "stays in host memory"));
  machine_.file_system = {.type = "overlay",
                          .size = GiB(10),
                          .free = GiB(9),
                          .in_memory = false,
                          .overlay = true};
  EXPECT_EQ(SeverityOf("file_system"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("file_system").fix, "docker run -v"));
}

TEST_F(StorageFindingsTest, ARefusedDirectTransferHurts) {
  machine_.direct = false;
  EXPECT_EQ(SeverityOf("direct_io"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("direct_io").consequence, "page cache"));
}

TEST_F(StorageFindingsTest, AFullDriveHurtsAndATooFullOneBlocks) {
  machine_.file_system.free = GiB(99);
  EXPECT_EQ(SeverityOf("free_space"), Severity::kHurts);
  EXPECT_EQ(Find("free_space").fact, "99 GiB of 1000 GiB");
  machine_.file_system.free = MiB(63);
  EXPECT_EQ(SeverityOf("free_space"), Severity::kBlocks);
  // What is asked for decides where it is given.
  machine_.file_system.free = GiB(800);
  drives_[0].size = GiB(801);
  EXPECT_EQ(SeverityOf("free_space"), Severity::kBlocks);
  EXPECT_TRUE(Has(Find("free_space").consequence, "801 GiB are asked for"));
  drives_[0].size = GiB(800);
  EXPECT_EQ(SeverityOf("free_space"), Severity::kOk);
  // ramfs does not say.
  machine_.file_system.size = Bytes(0);
  machine_.file_system.free = Bytes(0);
  EXPECT_EQ(SeverityOf("free_space"), Severity::kOk);
}

}  // namespace
}  // namespace castor
