// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_COMMANDS_DOCTOR_FAKE_MACHINE_H_
#define CASTOR_TESTS_TOOLS_COMMANDS_DOCTOR_FAKE_MACHINE_H_

// A machine made up for `castor doctor`: files below a folder, and answers to
// everything else. As it is made, nothing is wrong with it.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/internal/machine_topology.h"
#include "offload/kernels/instruction_set.h"
#include "offload/nvme/file_system_facts.h"
#include "tools/commands/doctor/doctor_system.h"
#include "tools/commands/doctor/finding.h"

namespace castor {

class FakeMachine : public DoctorSystem {
 public:
  explicit FakeMachine(const std::filesystem::path& root)
      : DoctorSystem(root.string()), root_(root) {
    SetMeminfo(meminfo);
    Put("/proc/self/status",
        "Name:\tcastor\nCapEff:\t0000000000000000\n"
        "Seccomp:\t0\n");
    Put("/proc/self/cgroup", "0::/\n");
    Put("/proc/sys/vm/overcommit_memory", "0\n");
    Put("/sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n");
    topology.packages = 1;
    topology.cores = 8;
    topology.threads = 16;
    topology.nodes = {{.number = 0, .memory = GiB(64), .cores = 8}};
  }

  void Put(const std::string& file, std::string_view text) const {
    const std::filesystem::path path = root_.string() + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void Remove(const std::string& file) const {
    std::filesystem::remove(root_.string() + file);
  }
  // In KiB, but for what is counted.
  void SetMeminfo(const std::map<std::string, int64_t>& values) const {
    std::string text;
    for (const auto& [key, value] : values) {
      text += key + ":       " + std::to_string(value) + " kB\n";
    }
    Put("/proc/meminfo", text);
  }
  // A card at `bus_id`, and its link.
  void AddGpu(const std::string& bus_id, const std::string& width,
              const std::string& speed) const {
    const std::string folder = "/sys/bus/pci/devices/" + bus_id + "/";
    Put(folder + "vendor", "0x10de\n");
    Put(folder + "class", "0x030200\n");
    Put(folder + "current_link_width", width + "\n");
    Put(folder + "max_link_width", "16\n");
    Put(folder + "current_link_speed", speed + " GT/s PCIe\n");
    Put(folder + "max_link_speed", "32.0 GT/s PCIe\n");
  }

  std::optional<int64_t> Limit(int resource) const override {
    const auto found = limits.find(resource);
    if (found == limits.end()) return std::nullopt;
    return found->second;
  }
  int UsableCores() const override { return 8; }
  InstructionSet Instructions() const override { return instructions; }
  Result<internal::MachineTopology> Topology() const override {
    if (!no_topology.ok()) return no_topology;
    return topology;
  }
  std::string TryBind(int) const override { return bind_refused; }
  Status TryUring() const override { return uring; }
  Result<bool> TryFolder(const std::filesystem::path&) const override {
    if (!folder.ok()) return folder;
    return direct;
  }
  Result<FileSystemFacts> FileSystem(
      const std::filesystem::path&) const override {
    if (!no_file_system.ok()) return no_file_system;
    return file_system;
  }
  std::optional<LibraryFacts> Library(GpuLibrary library) const override {
    const auto found = libraries.find(library);
    if (found == libraries.end()) return std::nullopt;
    return found->second;
  }

  std::map<std::string, int64_t> meminfo = {
      {"MemTotal", 64 << 20},    {"MemAvailable", 60 << 20},
      {"SwapTotal", 0},          {"SwapFree", 0},
      {"HugePages_Total", 0},    {"HugePages_Free", 0},
      {"Hugepagesize", 2048},    {"CommitLimit", 32 << 20},
      {"Committed_AS", 30 << 20}};
  std::map<int, int64_t> limits = {};  // none: unlimited
  InstructionSet instructions = {.name = "AVX3", .wide = true};
  internal::MachineTopology topology = {};
  Status no_topology = {};
  std::string bind_refused = {};
  Status uring = {};
  Status folder = {};
  bool direct = true;
  FileSystemFacts file_system = {.type = "ext4",
                                 .size = GiB(1000),
                                 .free = GiB(800),
                                 .in_memory = false,
                                 .overlay = false};
  Status no_file_system = {};
  std::map<GpuLibrary, LibraryFacts> libraries = {};

 private:
  const std::filesystem::path root_;
};

// The finding of that id; there is one.
inline Finding Of(const std::vector<Finding>& findings, std::string_view id) {
  const auto is = [id](const Finding& one) { return one.id == id; };
  CASTOR_CHECK_EQ(std::count_if(findings.begin(), findings.end(), is), 1);
  return *std::find_if(findings.begin(), findings.end(), is);
}

inline bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// Whether a bad finding says what follows and what to do, and a good one
// neither.
inline bool IsComplete(const Finding& finding) {
  const bool ok = finding.severity == Severity::kOk;
  return !finding.subject.empty() && !finding.fact.empty() &&
         finding.consequence.empty() == ok && finding.fix.empty() == ok;
}

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_COMMANDS_DOCTOR_FAKE_MACHINE_H_
