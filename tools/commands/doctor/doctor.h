// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_H_
#define CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_H_

// What of a machine will hurt Castor: the facts that `castor doctor` asks for,
// as values, so that a test can present any defect, and what they mean. All but
// ReadMachineFacts are values and pure functions. Thread-compatible.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/host/available_memory.h"
#include "offload/host/machine_topology.h"
#include "offload/nvme/file_system_facts.h"
#include "offload/nvme/nvme_option.h"
#include "tools/cli/text/document.h"

namespace castor {

struct DriveFacts {
  NvmeOption option;
  // Whether a file there takes O_DIRECT, or why there cannot be one.
  Result<bool> direct;
  FileSystemFacts file_system = {};
};

// A card of NVIDIA's on the PCI bus, and its link; 0 lanes: not known.
struct GpuFacts {
  std::string bus_id;
  int lanes = 0;
  int most_lanes = 0;
};

// What the Python of CASTOR_PYTHON, else python3, has of PyTorch. The wheel's
// command names the Python that it is installed in.
struct TorchFacts {
  std::string python;
  std::string version;  // empty: it has no torch
  std::string gpu;      // that torch computes on; empty: none, or nobody asked
  int capability = 0;   // of the GPU, 90 for sm_90
};

struct MachineFacts {
  std::optional<internal::AvailableMemory> available;
  std::optional<internal::AvailableMemory> without_cgroups;
  std::optional<Bytes> lock_limit;  // nothing: none
  std::string huge_pages;  // as the kernel writes it; empty: it has none
  int cores = 0;           // on which this process may run
  int all_cores = 0;       // that the machine has
  std::optional<double> cpu_quota;  // in cores
  Status threads;                   // whether as many start as a rank needs
  std::string topology_file;        // empty: the topology is this machine's
  Result<internal::MachineTopology> topology =
      Unavailable("the topology was not read");
  std::string bind_refused;  // why memory cannot be bound to a node
  Status uring;
  bool uring_disabled = false;  // by kernel.io_uring_disabled
  std::vector<DriveFacts> drives;
  std::vector<GpuFacts> gpus;
  bool gpu_driver = false;  // is loaded
  // The newest CUDA of libcuda.so.1 as it numbers itself, 13000; 0: it does not
  // say; nothing: not found.
  std::optional<int> driver_cuda;
  TorchFacts torch;
};

// With `gpu` torch is imported, which takes seconds.
TorchFacts ReadTorchFacts(bool gpu);

// `nvme` are values of --nvme; `topology_file` may be empty. Fails where they
// have no meaning or the file cannot be read. What is tried is tried as Castor
// does it, through its own code; nothing is changed and nothing left behind.
Result<MachineFacts> ReadMachineFacts(const std::vector<std::string>& nvme,
                                      const std::string& topology_file);

enum class Severity : uint8_t {
  kBlocks,  // what was asked for cannot be done
  kHurts,   // it is done slower, or with less
  kOk,
};

// One thing that was looked at.
struct Finding {
  std::string id;       // for programs: "memlock"
  std::string subject;  // for people: "locked memory"
  std::string fact;     // with numbers
  Severity severity = Severity::kOk;
  // What follows for Castor and what to do, of no meaning where all is well.
  std::string consequence = {};
  std::string fix = {};
};

std::vector<Finding> FindingsOf(const MachineFacts& facts);

// On the page what blocks comes first, then what hurts, then the rest; a fix is
// on a line of its own, to be copied. Schema "castor.doctor/1".
Document DoctorDocument(const MachineFacts& facts,
                        const std::vector<Finding>& findings);

// Unavailable, naming what blocks, where anything does.
Status DoctorStatus(const std::vector<Finding>& findings);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_DOCTOR_DOCTOR_H_
