// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/doctor_run.h"

#include <cstdint>
#include <utility>

#include "chunk/base/quote.h"
#include "offload/internal/machine_topology.h"
#include "offload/nvme/nvme_option.h"
#include "tools/cli/nvme_flag.h"
#include "tools/commands/doctor/gpu_findings.h"
#include "tools/commands/doctor/memory_findings.h"
#include "tools/commands/doctor/processor_findings.h"
#include "tools/commands/doctor/storage_findings.h"
#include "tools/models/input_file.h"

namespace castor {
namespace {

// The largest machines need a few megabytes.
constexpr uint64_t kMaxTopologyBytes = uint64_t{256} << 20;

Result<internal::MachineTopology> ReadTopologyFile(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::string xml,
                          file.ReadAll(kMaxTopologyBytes));
  Result<internal::MachineTopology> topology =
      internal::ParseMachineTopology(xml);
  if (!topology.ok()) return topology.status().WithContext(QuotedPath(path));
  return topology;
}

void Add(std::vector<Finding> more, std::vector<Finding>* findings) {
  for (Finding& finding : more) findings->push_back(std::move(finding));
}

}  // namespace

Result<DoctorReport> RunDoctor(const DoctorRequest& request,
                               const DoctorSystem& system) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<NvmeOption> drives,
                          ParseNvmeFlag(request.nvme));
  const bool from_file = !request.topology.empty();
  Result<internal::MachineTopology> topology =
      from_file ? ReadTopologyFile(request.topology) : system.Topology();
  if (from_file && !topology.ok()) return topology.status();
  DoctorReport report;
  Add(MemoryFindings(system), &report.findings);
  Add(ProcessorFindings(system), &report.findings);
  if (topology.ok()) {
    Add(TopologyFindings(system, *topology, request.topology),
        &report.findings);
    report.topology = *std::move(topology);
  } else {
    report.findings.push_back(
        Hurting({.id = "numa",
                 .subject = "NUMA nodes",
                 .fact = std::string(topology.status().message())},
                "threads and memory cannot be bound to each other",
                "mount /sys, or give the topology with --topology FILE.xml"));
  }
  Add(StorageFindings(system, drives), &report.findings);
  Add(GpuFindings(system), &report.findings);
  return report;
}

}  // namespace castor
