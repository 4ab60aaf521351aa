// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_TWIN_SIMULATED_LINK_H_
#define CASTOR_OFFLOAD_TWIN_SIMULATED_LINK_H_

// How long transfers of the simulated device take: the link to it, the link
// from it, and its own memory. A transfer takes the latency, then has the wire
// to itself for bytes over bandwidth, in the order in which transfers begin
// (one copy engine per direction, as hardware has it). One transfer alone takes
// what LinkSeconds of placement/tier_model.h says, rounded up to a nanosecond.
// Where the link is half duplex both directions share one wire. Books time, and
// neither waits nor copies. Thread-safe. Part of the simulated device
// (simulated_device.h).

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "chunk/base/units.h"
#include "offload/device.h"
#include "placement/tier_model.h"

namespace castor {

enum class Duplex : uint8_t { kFull, kHalf };

// A link that is empty takes no time.
struct SimulatedLinkModels {
  std::optional<LinkModel> to_device = {};
  std::optional<LinkModel> from_device = {};
  // The device's memory: counts bytes read plus bytes written, by copies within
  // the device and by kernels.
  std::optional<LinkModel> within_device = {};
  Duplex duplex = Duplex::kFull;  // of the two directions to and from

  friend bool operator==(const SimulatedLinkModels&,
                         const SimulatedLinkModels&) = default;
};

// The links between host and device that `model` knows.
SimulatedLinkModels LinkModelsOf(const TierModel& model, Duplex duplex);

// Nanoseconds that `bytes` hold the wire, rounded up. REQUIRES: bytes >= 0.
int64_t WireNs(const LinkModel& link, Bytes bytes);

struct LinkUse {
  int64_t transfers = 0;
  Bytes bytes;
  int64_t busy_ns = 0;  // of the wire, by transfers of this kind

  friend bool operator==(const LinkUse&, const LinkUse&) = default;
};

class SimulatedLinks {
 public:
  // REQUIRES: bandwidths are positive, latencies not negative.
  explicit SimulatedLinks(const SimulatedLinkModels& models);

  // Whether transfers of the kind take time.
  bool throttles(CopyKind kind) const { return model(kind).has_value(); }

  // Books a transfer that begins at `now_ns`; returns when it ends.
  int64_t Book(CopyKind kind, int64_t now_ns, Bytes bytes);

  // What was booked so far.
  LinkUse use(CopyKind kind) const;

 private:
  static constexpr int kKinds = 3;

  const std::optional<LinkModel>& model(CopyKind kind) const {
    return models_[static_cast<size_t>(kind)];
  }

  std::array<std::optional<LinkModel>, kKinds> models_;
  std::array<size_t, kKinds> wire_of_kind_;

  mutable std::mutex mutex_;
  std::array<int64_t, kKinds> wire_free_ns_{};  // guarded by mutex_
  std::array<LinkUse, kKinds> use_{};           // guarded by mutex_
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_TWIN_SIMULATED_LINK_H_
