// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/twin/simulated_link.h"

#include <algorithm>

#include "chunk/base/check.h"

namespace castor {

SimulatedLinkModels LinkModelsOf(const TierModel& model, Duplex duplex) {
  return {.to_device = model.host_to_device,
          .from_device = model.device_to_host,
          .within_device = std::nullopt,
          .duplex = duplex};
}

int64_t WireNs(const LinkModel& link, Bytes bytes) {
  CASTOR_CHECK_GE(bytes, Bytes(0));
  const auto rate = static_cast<unsigned __int128>(link.bytes_per_second);
  const auto scaled =
      static_cast<unsigned __int128>(bytes.count()) * 1'000'000'000;
  return static_cast<int64_t>((scaled + rate - 1) / rate);
}

SimulatedLinks::SimulatedLinks(const SimulatedLinkModels& models)
    : models_{models.to_device, models.from_device, models.within_device},
      wire_of_kind_{0, models.duplex == Duplex::kHalf ? size_t{0} : size_t{1},
                    2} {
  for (const std::optional<LinkModel>& link : models_) {
    if (!link) continue;
    CASTOR_CHECK_GT(link->bytes_per_second, 0);
    CASTOR_CHECK_GE(link->latency_ns, 0);
  }
}

int64_t SimulatedLinks::Book(CopyKind kind, int64_t now_ns, Bytes bytes) {
  const size_t k = static_cast<size_t>(kind);
  const int64_t wire_ns = models_[k] ? WireNs(*models_[k], bytes) : 0;
  std::lock_guard lock(mutex_);
  ++use_[k].transfers;
  use_[k].bytes += bytes;
  use_[k].busy_ns += wire_ns;
  if (!models_[k]) return now_ns;
  int64_t& wire_free_ns = wire_free_ns_[wire_of_kind_[k]];
  wire_free_ns =
      std::max(now_ns + models_[k]->latency_ns, wire_free_ns) + wire_ns;
  return wire_free_ns;
}

LinkUse SimulatedLinks::use(CopyKind kind) const {
  std::lock_guard lock(mutex_);
  return use_[static_cast<size_t>(kind)];
}

}  // namespace castor
