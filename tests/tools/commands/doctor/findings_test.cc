// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the facts of a machine mean, on machines that are made up.

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "gtest/gtest.h"
#include "tools/commands/doctor/doctor.h"

namespace castor {
namespace {

constexpr Severity kOk = Severity::kOk;
constexpr Severity kHurts = Severity::kHurts;
constexpr Severity kBlocks = Severity::kBlocks;

internal::MachineTopology Nodes(int count) {
  internal::MachineTopology topology;
  topology.packages = count;
  topology.cores = 8 * count;
  for (int i = 0; i < count; ++i) {
    topology.nodes.push_back({.number = i, .memory = GiB(64), .cores = 8});
  }
  return topology;
}

// With nothing wrong about it.
MachineFacts GoodMachine() {
  MachineFacts facts;
  facts.available = {GiB(60), "MemAvailable in /proc/meminfo"};
  facts.without_cgroups = facts.available;
  facts.huge_pages = "always [madvise] never";
  facts.cores = 8;
  facts.topology = Nodes(1);
  facts.drives = {{{.directory = "/mnt/nvme0", .size = {}},
                   true,
                   {.type = "ext4", .size = GiB(1000), .free = GiB(800)}}};
  facts.gpus = {{.bus_id = "0000:3b:00.0", .lanes = 16, .most_lanes = 16}};
  facts.gpu_driver = true;
  facts.driver_cuda = 13000;
  facts.torch = {"python3", "2.15.0+cu130", "NVIDIA H100", 90};
  return facts;
}

// The finding of that id; there is one.
Finding Find(const MachineFacts& facts, std::string_view id) {
  const std::vector<Finding> findings = FindingsOf(facts);
  const auto is = [id](const Finding& one) { return one.id == id; };
  CASTOR_CHECK_EQ(std::count_if(findings.begin(), findings.end(), is), 1);
  return *std::find_if(findings.begin(), findings.end(), is);
}

TEST(FindingsTest, NothingIsWrongWithAGoodMachine) {
  MachineFacts facts = GoodMachine();
  EXPECT_EQ(FindingsOf(facts).size(), 13u);
  for (const Finding& finding : FindingsOf(facts)) {
    EXPECT_EQ(finding.severity, kOk) << finding.id;
    EXPECT_FALSE(finding.subject.empty() || finding.fact.empty());
  }
  // A machine without a GPU lacks nothing, nor does one without a drive.
  facts.gpus = {};
  facts.gpu_driver = false;
  facts.driver_cuda = {};
  facts.drives = {};
  EXPECT_EQ(FindingsOf(facts).size(), 9u);
  EXPECT_EQ(Find(facts, "gpu").severity, kOk);
}

// A defect, and what is found of it. `said` is in the fact or in the fix.
struct Defect {
  std::string id;
  Severity severity;
  std::function<void(MachineFacts&)> make;
  std::string said;
};

TEST(FindingsTest, EachDefectIsFoundWithWhatFollowsAndWhatToDo) {
  const Defect defects[] = {
      {"memlock", kHurts, [](auto& m) { m.lock_limit = MiB(8); },
       "8 MiB may be locked"},
      {"memlock", kHurts, [](auto& m) { m.lock_limit = GiB(60) - Bytes(1); },
       "ulimit -l unlimited"},
      {"memlock", kOk, [](auto& m) { m.lock_limit = GiB(60); }, "60 GiB"},
      {"memory", kHurts,
       [](auto& m) {
         m.available = {GiB(7), "/job/memory.max"};
       },
       "7 GiB by /job/memory.max"},
      {"memory", kBlocks,
       [](auto& m) {
         m.available = {MiB(255), "/job/memory.max"};
       },
       "docker run --memory"},
      {"memory", kBlocks, [](auto& m) { m.available->bytes = MiB(255); },
       "end other programs"},
      {"memory", kOk, [](auto& m) { m.available->bytes = MiB(256); }, ""},
      {"memory", kHurts, [](auto& m) { m.available = {}; }, "mount /proc"},
      {"huge_pages", kHurts,
       [](auto& m) { m.huge_pages = "always madvise [never]"; },
       "echo madvise"},
      {"huge_pages", kHurts, [](auto& m) { m.huge_pages = ""; },
       "CONFIG_TRANSPARENT_HUGEPAGE"},
      {"huge_pages", kOk,
       [](auto& m) { m.huge_pages = "[always] madvise never"; }, ""},
      {"threads", kBlocks,
       [](auto& m) { m.threads = Unavailable("20 threads (ulimit -u)"); },
       "ulimit -u"},
      {"cpu_quota", kHurts, [](auto& m) { m.cpu_quota = 2.5; },
       "8 cores, of which a cgroup gives the time of 2.5"},
      {"cpu_quota", kOk, [](auto& m) { m.cpu_quota = 8; }, "no quota"},
      {"cpu_quota", kHurts,
       [](auto& m) {
         m.cores = 1;
         m.all_cores = 8;
       },
       "1 core of 8, to which this process is bound"},
      {"cpu_quota", kOk, [](auto& m) { m.cores = m.all_cores = 1; },
       "1 core, no quota"},
      {"numa", kOk, [](auto& m) { m.bind_refused = "not permitted"; },
       "1 node in 1 package with 8 cores, all memory is as near"},
      {"numa", kOk, [](auto& m) { m.topology = Nodes(2); },
       "memory may be bound"},
      {"numa", kHurts,
       [](auto& m) {
         m.topology = Nodes(2);
         m.bind_refused = "not permitted";
       },
       "SYS_NICE"},
      // Of another machine it cannot be known.
      {"numa", kOk,
       [](auto& m) {
         m.topology = Nodes(2);
         m.bind_refused = "not permitted";
         m.topology_file = "other.xml";
       },
       "2 nodes in 2 packages with 16 cores, of other.xml"},
      {"numa", kHurts,
       [](auto& m) { m.topology = Unavailable("hwloc cannot read it"); },
       "--topology FILE.xml"},
      {"io_uring", kHurts, [](auto& m) { m.uring = Unavailable("refused"); },
       "seccomp profile"},
      {"io_uring", kHurts,
       [](auto& m) {
         m.uring = Unavailable("refused");
         m.uring_disabled = true;
       },
       "sudo sysctl kernel.io_uring_disabled=0"},
      {"folder", kBlocks,
       [](auto& m) { m.drives[0].direct = Unavailable("Permission denied"); },
       "mkdir -p /mnt/nvme0, allow this user"},
      {"folder", kHurts,
       [](auto& m) { m.drives[0].file_system.in_memory = true; },
       "give --nvme a folder on a drive"},
      {"folder", kHurts,
       [](auto& m) { m.drives[0].file_system.overlay = true; },
       "docker run -v"},
      {"folder", kHurts,
       [](auto& m) { m.drives[0].file_system.network = true; },
       "give --nvme a folder on a drive"},
      {"direct_io", kHurts, [](auto& m) { m.drives[0].direct = false; },
       "ext4 or xfs"},
      {"free_space", kHurts,
       [](auto& m) { m.drives[0].file_system.free = GiB(99); },
       "99 GiB of 1000 GiB"},
      {"free_space", kBlocks,
       [](auto& m) { m.drives[0].file_system.free = MiB(63); }, "63 MiB"},
      // What is asked for decides where it is given.
      {"free_space", kBlocks,
       [](auto& m) { m.drives[0].option.size = GiB(801); }, "free some space"},
      {"free_space", kOk, [](auto& m) { m.drives[0].option.size = GiB(800); },
       ""},
      {"gpu", kHurts, [](auto& m) { m.gpu_driver = false; },
       "1 NVIDIA GPU, no driver loaded"},
      {"gpu", kHurts, [](auto& m) { m.driver_cuda = {}; },
       "docker run --gpus all"},
      {"gpu", kOk, [](auto& m) { m.driver_cuda = 12080; }, "CUDA up to 12.8"},
      {"pcie_link", kHurts, [](auto& m) { m.gpus[0].lanes = 4; },
       "4 lanes of 16"},
      {"pcie_link", kOk, [](auto& m) { m.gpus[0].lanes = 0; },
       "does not tell its lanes"},
      {"torch", kOk, [](auto& m) { m.torch.version = ""; }, "none in python3"},
      {"torch", kOk, [](auto& m) { m.torch.version = "2.4.1"; },
       "torch 2.4.1 in python3, on NVIDIA H100 (sm_90)"},
      {"torch", kHurts, [](auto& m) { m.torch.version = "2.3.1"; },
       "python3 -m pip install 'torch>=2.4'"},
      {"torch", kHurts, [](auto& m) { m.torch.gpu = ""; }, "which sees no GPU"},
      {"torch", kHurts, [](auto& m) { m.torch.capability = 75; },
       "on NVIDIA H100 (sm_75)"}};
  for (const Defect& defect : defects) {
    MachineFacts facts = GoodMachine();
    defect.make(facts);
    const Finding finding = Find(facts, defect.id);
    SCOPED_TRACE(finding.id + ": " + finding.fact);
    EXPECT_EQ(finding.severity, defect.severity);
    EXPECT_NE((finding.fact + finding.fix).find(defect.said),
              std::string::npos);
    for (const Finding& other : FindingsOf(facts)) {
      if (other.id == defect.id) continue;
      EXPECT_EQ(other.severity, kOk) << other.id;
    }
    if (defect.severity == kOk) continue;
    EXPECT_FALSE(finding.consequence.empty() || finding.fix.empty());
  }
}

TEST(FindingsTest, AFolderThatCannotBeUsedSaysNothingElse) {
  MachineFacts facts = GoodMachine();
  facts.drives[0].direct = Unavailable("No such file or directory");
  EXPECT_EQ(FindingsOf(facts).size(), 11u);
  // ramfs does not say how much there is.
  facts.drives[0] = {{.directory = "/ram", .size = {}}, true};
  EXPECT_EQ(FindingsOf(facts).size(), 12u);
  EXPECT_EQ(Find(facts, "direct_io").severity, kOk);
}

std::vector<Finding> OneOfEach() {
  return {{"gpu", "GPU", "none", kOk, "unsaid", "unsaid"},
          {"memlock", "locked memory", "8 MiB", kHurts, "pages may move",
           "ulimit -l unlimited"},
          {"folder", "folder /x", "missing", kBlocks,
           "nothing can be kept there", "mkdir -p /x"}};
}

TEST(DoctorDocumentTest, WhatBlocksComesFirst) {
  MachineFacts facts;
  std::vector<Finding> findings = OneOfEach();
  EXPECT_EQ(DoctorDocument(facts, findings).Page(),
            "blocks      folder /x: missing\n"
            "            nothing can be kept there\n"
            "  fix       mkdir -p /x\n"
            "hurts       locked memory: 8 MiB\n"
            "            pages may move\n"
            "  fix       ulimit -l unlimited\n"
            "ok          GPU: none\n"
            "\n"
            "1 ok, 1 hurt, 1 block\n");
  EXPECT_EQ(DoctorStatus(findings).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(DoctorStatus(findings).message(),
            "blocked by folder /x; the fixes are above");
  findings.pop_back();
  EXPECT_TRUE(DoctorStatus(findings).ok());
  facts.topology = Nodes(1);
  const std::string page = DoctorDocument(facts, findings).Page();
  EXPECT_TRUE(page.starts_with("Machine     1 package, 8 cores"));
  EXPECT_NE(page.find("\nNext        castor probe"), std::string::npos);
}

TEST(DoctorDocumentTest, IsADocumentForPrograms) {
  MachineFacts facts;
  JsonValue json = DoctorDocument(facts, OneOfEach()).Json();
  EXPECT_EQ(json["schema"], "castor.doctor/1");
  EXPECT_EQ(json["blocks"], 1);
  EXPECT_EQ(json["hurts"], 1);
  EXPECT_EQ(json["ok"], 1);
  EXPECT_EQ(json["findings"][0], JsonValue::Object({{"id", "gpu"},
                                                    {"severity", "ok"},
                                                    {"subject", "GPU"},
                                                    {"fact", "none"}}));
  EXPECT_EQ(json["findings"][2]["severity"], "blocks");
  EXPECT_EQ(json["findings"][2]["fix"], "mkdir -p /x");
  EXPECT_TRUE(json["topology"].is_null());
  facts.topology = Nodes(1);
  EXPECT_EQ(DoctorDocument(facts, {}).Json()["topology"]["cores"], 8);
}

}  // namespace
}  // namespace castor
