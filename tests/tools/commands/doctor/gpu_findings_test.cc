// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/gpu_findings.h"

#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/commands/doctor/fake_machine.h"

namespace castor {
namespace {

constexpr char kDriverFile[] = "/proc/driver/nvidia/version";

class GpuFindingsTest : public testing::Test {
 protected:
  Finding Find(std::string_view id) const {
    const Finding finding = Of(GpuFindings(machine_), id);
    EXPECT_TRUE(IsComplete(finding)) << finding.fact;
    return finding;
  }
  Severity SeverityOf(std::string_view id) const { return Find(id).severity; }
  // A card, with all that belongs to it.
  void AddGpu() {
    machine_.AddGpu("0000:3b:00.0", "16", "32.0");
    machine_.Put(kDriverFile,
                 "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                 "580.65.06  Release Build\nGCC version: 12.2.0\n");
    machine_.libraries = {
        {GpuLibrary::kDriver, {.name = "libcuda.so.1", .version = 13000}},
        {GpuLibrary::kRuntime, {.name = "libcudart.so.13", .version = 13000}},
        {GpuLibrary::kNccl, {.name = "libnccl.so.2", .version = 22809}}};
  }

  const TempDir dir_;
  FakeMachine machine_{dir_.path()};
};

TEST_F(GpuFindingsTest, AMachineWithoutAGpuLacksNothing) {
  const std::vector<Finding> findings = GpuFindings(machine_);
  EXPECT_EQ(findings.size(), 3u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.id;
    EXPECT_TRUE(IsComplete(finding)) << finding.id;
  }
  EXPECT_TRUE(Has(Find("gpu").fact, "simulated"));
  // Nor does one with the card of somebody else.
  machine_.Put("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
  machine_.Put("/sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
  machine_.Put("/sys/bus/pci/devices/0000:00:03.0/vendor", "0x10de\n");
  machine_.Put("/sys/bus/pci/devices/0000:00:03.0/class", "0x040300\n");
  EXPECT_EQ(GpuFindings(machine_).size(), 3u);
}

TEST_F(GpuFindingsTest, SaysTheVersionsOfWhatIsThere) {
  AddGpu();
  EXPECT_EQ(Find("gpu").fact,
            "1 NVIDIA GPU, driver 580.65.06, for CUDA up to 13.0");
  EXPECT_EQ(Find("cuda_runtime").fact, "13.0 (libcudart.so.13)");
  EXPECT_EQ(Find("nccl").fact, "2.28.9 (libnccl.so.2)");
  EXPECT_EQ(Find("pcie_link").fact, "x16 of x16, 32 of 32 GT/s");
  for (const Finding& finding : GpuFindings(machine_)) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.id;
  }
  machine_.libraries[GpuLibrary::kNccl].version = 2708;
  EXPECT_EQ(Find("nccl").fact, "2.7.8 (libnccl.so.2)");
  machine_.libraries[GpuLibrary::kNccl].version = 0;
  EXPECT_TRUE(Has(Find("nccl").fact, "tells no version"));
}

TEST_F(GpuFindingsTest, ACardWithoutADriverHurts) {
  AddGpu();
  machine_.libraries.erase(GpuLibrary::kDriver);
  EXPECT_EQ(SeverityOf("gpu"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("gpu").fix, "docker run --gpus all"));
  machine_.Remove(kDriverFile);
  EXPECT_EQ(SeverityOf("gpu"), Severity::kHurts);
  EXPECT_EQ(Find("gpu").fact, "1 NVIDIA GPU, no driver loaded");
}

TEST_F(GpuFindingsTest, ARuntimeNewerThanTheDriverHurts) {
  AddGpu();
  machine_.libraries[GpuLibrary::kDriver].version = 12080;
  const Finding finding = Find("cuda_runtime");
  EXPECT_EQ(finding.severity, Severity::kHurts);
  EXPECT_TRUE(Has(finding.consequence, "CUDA up to 12.8"));
  // Within a major version it does not.
  machine_.libraries[GpuLibrary::kRuntime].version = 12090;
  EXPECT_EQ(SeverityOf("cuda_runtime"), Severity::kOk);
  machine_.libraries.erase(GpuLibrary::kRuntime);
  EXPECT_EQ(SeverityOf("cuda_runtime"), Severity::kHurts);
}

TEST_F(GpuFindingsTest, SeveralCardsNeedNccl) {
  AddGpu();
  machine_.libraries.erase(GpuLibrary::kNccl);
  EXPECT_EQ(SeverityOf("nccl"), Severity::kOk);
  machine_.AddGpu("0000:5e:00.0", "16", "32.0");
  EXPECT_EQ(SeverityOf("nccl"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("nccl").consequence, "2 GPUs"));
}

TEST_F(GpuFindingsTest, ANarrowLinkHurtsAndAnIdleOneDoesNot) {
  AddGpu();
  machine_.AddGpu("0000:3b:00.0", "16", "2.5");
  EXPECT_EQ(SeverityOf("pcie_link"), Severity::kOk);
  EXPECT_TRUE(Has(Find("pcie_link").fact, "an idle link slows down"));
  machine_.AddGpu("0000:3b:00.0", "4", "32.0");
  EXPECT_EQ(SeverityOf("pcie_link"), Severity::kHurts);
  EXPECT_TRUE(Has(Find("pcie_link").consequence, "25"));
  machine_.AddGpu("0000:3b:00.0", "Unknown", "Unknown");
  EXPECT_EQ(SeverityOf("pcie_link"), Severity::kOk);
  EXPECT_TRUE(Has(Find("pcie_link").fact, "does not tell"));
}

}  // namespace
}  // namespace castor
