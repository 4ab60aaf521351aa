// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/machine_forms.h"

#include <fmt/format.h>

#include <vector>

#include "chunk/text/units_text.h"
#include "tools/cli/text/document.h"
#include "tools/cli/text/text_forms.h"

namespace castor {

using internal::CacheLevel;
using internal::MachineTopology;
using internal::NumaNode;
using internal::PciDevice;

std::string TopologyText(const MachineTopology& topology) {
  std::string text =
      fmt::format("{}, {}, {}, {}, {}", Plural(topology.packages, "package"),
                  Plural(topology.cores, "core"),
                  Plural(topology.threads, "hardware thread"),
                  Plural(std::ssize(topology.nodes), "NUMA node"),
                  FormatSize(topology.memory()));
  std::vector<std::string> caches;
  for (const CacheLevel& cache : topology.caches) {
    caches.push_back(fmt::format("{} {} of {}", cache.count, cache.name,
                                 FormatSize(cache.size)));
  }
  if (!caches.empty()) text += "; " + JoinedWithAnd(caches);
  return text;
}

JsonValue TopologyJson(const MachineTopology& topology) {
  return Fields({
      {"packages", topology.packages},
      {"cores", topology.cores},
      {"threads", topology.threads},
      {"memory_bytes", topology.memory()},
      {"nodes", ListOf(topology.nodes,
                       [](const NumaNode& node) {
                         return Fields({{"number", node.number},
                                        {"memory_bytes", node.memory},
                                        {"cores", node.cores}});
                       })},
      {"caches", ListOf(topology.caches,
                        [](const CacheLevel& cache) {
                          return Fields({{"name", cache.name},
                                         {"size_bytes", cache.size},
                                         {"count", cache.count}});
                        })},
      {"devices",
       ListOf(topology.devices,
              [](const PciDevice& device) {
                return Fields(
                    {{"bus_id", device.bus_id},
                     {"vendor", fmt::format("0x{:04x}", device.vendor)},
                     {"class", fmt::format("0x{:04x}", device.class_id)},
                     {"name", device.name},
                     {"node", device.node < 0 ? Value() : Value(device.node)}});
              })},
  });
}

}  // namespace castor
