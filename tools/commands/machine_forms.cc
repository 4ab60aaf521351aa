// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/machine_forms.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "chunk/base/units_text.h"
#include "tools/cli/text_forms.h"

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
  JsonValue json;
  json["packages"] = topology.packages;
  json["cores"] = topology.cores;
  json["threads"] = topology.threads;
  json["memory_bytes"] = topology.memory().count();
  json["nodes"] = JsonValue::Array();
  for (const NumaNode& node : topology.nodes) {
    json["nodes"].Append(
        JsonValue::Object({{"number", node.number},
                           {"memory_bytes", node.memory.count()},
                           {"cores", node.cores}}));
  }
  json["caches"] = JsonValue::Array();
  for (const CacheLevel& cache : topology.caches) {
    json["caches"].Append(JsonValue::Object({{"name", cache.name},
                                             {"size_bytes", cache.size.count()},
                                             {"count", cache.count}}));
  }
  json["devices"] = JsonValue::Array();
  for (const PciDevice& device : topology.devices) {
    json["devices"].Append(JsonValue::Object(
        {{"bus_id", device.bus_id},
         {"vendor", fmt::format("0x{:04x}", device.vendor)},
         {"class", fmt::format("0x{:04x}", device.class_id)},
         {"name", device.name},
         {"node", device.node < 0 ? JsonValue() : JsonValue(device.node)}}));
  }
  return json;
}

}  // namespace castor
