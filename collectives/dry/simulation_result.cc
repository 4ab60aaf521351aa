// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/dry/simulation_result.h"

#include <algorithm>

namespace castor {

std::string_view SimResourceName(SimResource resource) {
  switch (resource) {
    case SimResource::kCompute:
      return "compute";
    case SimResource::kToDevice:
      return "host to device";
    case SimResource::kFromDevice:
      return "device to host";
    case SimResource::kNvme:
      return "nvme";
    case SimResource::kHost:
      return "host optimizer";
    case SimResource::kCollectives:
      return "collectives";
    case SimResource::kDevice:
      return "device memory";
  }
  return "unknown";
}

int64_t SimulatedStep::idle_ns() const {
  int64_t left = ns() - busy(SimResource::kCompute);
  for (const StallSum& stall : stalls) left -= stall.ns;
  return left;
}

SimResource SimulatedStep::critical() const {
  const auto most = std::max_element(busy_ns.begin(), busy_ns.end());
  return static_cast<SimResource>(most - busy_ns.begin());
}

}  // namespace castor
