// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/processor_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "offload/internal/cpu_quota.h"
#include "tools/cli/text_forms.h"

namespace castor {
namespace {

using internal::MachineTopology;
using internal::NumaNode;
using internal::PciDevice;

Finding Kernels(const DoctorSystem& system) {
  const InstructionSet set = system.Instructions();
  Finding finding{.id = "instruction_set",
                  .subject = "instruction set",
                  .fact = "kernels run with " + set.name};
  if (set.wide) return finding;
  return Hurting(std::move(finding),
                 "optimizers and conversions take several times as long; "
                 "results are the same to the last bit",
                 "use a processor with AVX2 or NEON, or let the virtual "
                 "machine show its host's (-cpu host of QEMU)");
}

Finding ProcessorTime(const DoctorSystem& system) {
  Finding finding{.id = "cpu_quota", .subject = "processor time"};
  const int cores = system.UsableCores();
  const std::optional<double> quota = internal::ReadCpuQuota(system.paths());
  finding.fact = Plural(cores, "core");
  if (!quota || *quota >= cores) {
    finding.fact += quota ? ", a quota that leaves them free" : ", no quota";
    return finding;
  }
  finding.fact +=
      fmt::format(", of which a cgroup gives the time of {:.3g}", *quota);
  return Hurting(
      std::move(finding),
      fmt::format(
          "the host's optimizer gets {}; threads of the trainer beyond "
          "the quota are stopped for part of each period",
          Plural(std::max<int64_t>(1, static_cast<int64_t>(std::floor(*quota))),
                 "thread")),
      "raise the quota (docker run --cpus, CPUQuota= of systemd, limits.cpu of "
      "Kubernetes)");
}

// "0000:3b:00.0 (cuda0) near node 1", for those for which `is` holds.
template <typename Is>
std::string DevicesText(const MachineTopology& topology, const char* what,
                        const Is& is) {
  std::vector<std::string> texts;
  for (const PciDevice& device : topology.devices) {
    if (!is(device)) continue;
    std::string text = Shown(device.bus_id);
    if (!device.name.empty()) text += " (" + Shown(device.name) + ")";
    if (device.node >= 0) text += fmt::format(" near node {}", device.node);
    texts.push_back(std::move(text));
  }
  if (texts.empty()) return {};
  return fmt::format("; {} {}", what, JoinedWithAnd(texts));
}

Finding Nodes(const DoctorSystem& system, const MachineTopology& topology,
              const std::string& file) {
  Finding finding{.id = "numa", .subject = "NUMA nodes"};
  finding.fact = fmt::format(
      "{} in {} with {}",
      Plural(static_cast<int64_t>(topology.nodes.size()), "node"),
      Plural(topology.packages, "package"), Plural(topology.cores, "core"));
  const std::string devices =
      DevicesText(topology, "GPU",
                  [](const PciDevice& device) { return device.is_gpu(); }) +
      DevicesText(topology, "NVMe drive",
                  [](const PciDevice& device) { return device.is_nvme(); });
  if (!file.empty()) {
    finding.fact +=
        fmt::format(" (of {}, where binding cannot be tried)", Shown(file)) +
        devices;
    return finding;
  }
  if (topology.nodes.size() <= 1) {
    finding.fact += ", all memory is as near" + devices;
    return finding;
  }
  std::string refused;
  for (const NumaNode& node : topology.nodes) {
    const std::string why = system.TryBind(node.number);
    if (why.empty()) continue;
    refused = fmt::format("; binding memory to node {} is refused: {}",
                          node.number, why);
    break;
  }
  finding.fact +=
      (refused.empty() ? "; memory may be bound" : refused) + devices;
  if (refused.empty()) return finding;
  return Hurting(std::move(finding),
                 "pinned memory lies where the kernel puts it, and a copy from "
                 "the far node goes at half the speed or less",
                 "docker run --cap-add SYS_NICE, or a seccomp profile that "
                 "allows mbind and set_mempolicy");
}

// A node that has cores and no memory, or much less than others.
Finding Balance(const MachineTopology& topology) {
  Finding finding{.id = "numa_memory", .subject = "memory of nodes"};
  const Bytes fair =
      topology.memory() / static_cast<int64_t>(topology.nodes.size()) / 2;
  std::vector<std::string> poor;
  std::vector<std::string> all;
  for (const NumaNode& node : topology.nodes) {
    std::string text =
        fmt::format("node {} has {} for {}", node.number,
                    FormatSize(node.memory), Plural(node.cores, "core"));
    if (node.cores > 0 && node.memory < fair) {
      poor.push_back(fmt::format("{}", node.number));
    }
    all.push_back(std::move(text));
  }
  finding.fact = JoinedWithAnd(all);
  if (poor.empty()) return finding;
  return Hurting(
      std::move(finding),
      fmt::format("cores of node {} work on memory of other nodes, at a "
                  "fraction of the speed",
                  JoinedWithAnd(poor)),
      "put as many memory modules into each socket, or keep to the other "
      "nodes: numactl --cpunodebind=NODE --membind=NODE");
}

}  // namespace

std::vector<Finding> ProcessorFindings(const DoctorSystem& system) {
  return {Kernels(system), ProcessorTime(system)};
}

std::vector<Finding> TopologyFindings(const DoctorSystem& system,
                                      const MachineTopology& topology,
                                      const std::string& file) {
  std::vector<Finding> findings = {Nodes(system, topology, file)};
  if (topology.nodes.size() > 1) findings.push_back(Balance(topology));
  return findings;
}

}  // namespace castor
