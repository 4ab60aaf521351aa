// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_SYSTEM_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_SYSTEM_H_

// All that `castor doctor` asks of a machine, in one place so that a test can
// present one with any defect: files of /proc and /sys below a root, and calls
// that it overrides. What is tried is tried as Castor does it, through its own
// code. Nothing is changed and nothing left behind. Owner thread only.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "offload/internal/cgroup_folders.h"
#include "offload/internal/machine_topology.h"
#include "offload/kernels/instruction_set.h"
#include "offload/nvme/file_system_facts.h"

namespace castor {

// Libraries of NVIDIA that a program finds when it runs.
enum class GpuLibrary : uint8_t { kDriver, kRuntime, kNccl };

struct LibraryFacts {
  std::string name = {};  // "libnccl.so.2"
  int version = 0;  // as it numbers itself: 13000, 22809; 0: it does not say
};

class DoctorSystem {
 public:
  // `root` goes before every path of /proc and /sys.
  explicit DoctorSystem(std::string root = "");
  virtual ~DoctorSystem() = default;

  internal::SystemPaths paths() const;
  // The first line of a file, without blanks around it.
  std::optional<std::string> Line(std::string_view file) const;
  // The number that follows `key` at the start of a line.
  std::optional<int64_t> Field(std::string_view file, std::string_view key,
                               int base = 10) const;
  // What is in a folder, sorted; nothing where there is none.
  std::vector<std::string> Entries(std::string_view folder) const;

  // Of getrlimit(2), what is in force; nothing where it is unlimited.
  virtual std::optional<int64_t> Limit(int resource) const;
  // Cores on which this process may run.
  virtual int UsableCores() const;
  virtual InstructionSet Instructions() const;
  virtual Result<internal::MachineTopology> Topology() const;
  // Binds a page to a NUMA node. Empty, or why that is refused.
  virtual std::string TryBind(int node) const;
  // Sets a queue of io_uring up.
  virtual Status TryUring() const;
  // Makes a run directory with a file in the folder of a drive, and removes
  // them. Whether the file takes O_DIRECT, or why there cannot be one.
  virtual Result<bool> TryFolder(const std::filesystem::path& folder) const;
  virtual Result<FileSystemFacts> FileSystem(
      const std::filesystem::path& folder) const;
  // Nothing where it is not found.
  virtual std::optional<LibraryFacts> Library(GpuLibrary library) const;

 private:
  const std::string root_;
};

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_SYSTEM_H_
