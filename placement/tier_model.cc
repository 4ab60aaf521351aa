// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/tier_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "chunk/base/check.h"

namespace castor {
namespace {

double Seconds(int64_t latency_ns, double times, double bytes,
               int64_t bytes_per_second) {
  CASTOR_CHECK_GE(latency_ns, 0);
  CASTOR_CHECK_GT(bytes_per_second, 0);
  return static_cast<double>(latency_ns) * 1e-9 * times +
         bytes / static_cast<double>(bytes_per_second);
}

Status CheckNumbers(std::string_view name, int64_t bytes_per_second,
                    int64_t latency_ns) {
  if (bytes_per_second < kMinBytesPerSecond ||
      bytes_per_second > kMaxBytesPerSecond) {
    return InvalidArgument(
        fmt::format("{} moves {} bytes per second: that is from {} to {}", name,
                    bytes_per_second, kMinBytesPerSecond, kMaxBytesPerSecond));
  }
  if (latency_ns < 0 || latency_ns > kMaxLatencyNs) {
    return InvalidArgument(
        fmt::format("{} has a latency of {} ns: that is from 0 to {}", name,
                    latency_ns, kMaxLatencyNs));
  }
  return OkStatus();
}

}  // namespace

Status CheckTierModel(const TierModel& model) {
  const struct {
    std::string_view name;
    const std::optional<LinkModel>& link;
  } links[] = {{"host_to_device", model.host_to_device},
               {"device_to_host", model.device_to_host},
               {"host_to_device_duplex", model.host_to_device_duplex},
               {"device_to_host_duplex", model.device_to_host_duplex},
               {"nvme_read", model.nvme_read},
               {"nvme_write", model.nvme_write},
               {"nvme_mixed", model.nvme_mixed}};
  for (const auto& [name, link] : links) {
    if (!link) continue;
    CASTOR_RETURN_IF_ERROR(
        CheckNumbers(name, link->bytes_per_second, link->latency_ns));
  }
  const struct {
    std::string_view name;
    const std::optional<RingModel>& ring;
  } rings[] = {{"all_gather", model.all_gather},
               {"reduce_scatter", model.reduce_scatter}};
  for (const auto& [name, ring] : rings) {
    if (!ring) continue;
    CASTOR_RETURN_IF_ERROR(
        CheckNumbers(name, ring->bytes_per_second, ring->step_latency_ns));
  }
  if (model.memory) {
    CASTOR_RETURN_IF_ERROR(
        CheckNumbers("memory", model.memory->bytes_per_second, 0));
  }
  if (model.optimizer) {
    return CheckNumbers("optimizer", model.optimizer->bytes_per_second, 0);
  }
  return OkStatus();
}

double LinkSeconds(const LinkModel& link, int64_t transfers, Bytes bytes) {
  CASTOR_CHECK_GE(transfers, 0);
  CASTOR_CHECK_GE(bytes, Bytes(0));
  return Seconds(link.latency_ns, static_cast<double>(transfers),
                 static_cast<double>(bytes.count()), link.bytes_per_second);
}

double RingSeconds(const RingModel& ring, int64_t calls, Bytes bytes,
                   int world) {
  CASTOR_CHECK_GE(calls, 0);
  CASTOR_CHECK_GE(bytes, Bytes(0));
  CASTOR_CHECK_GE(world, 1);
  const double steps = world - 1;
  return Seconds(ring.step_latency_ns, static_cast<double>(calls) * steps,
                 static_cast<double>(bytes.count()) * (steps / world),
                 ring.bytes_per_second);
}

TierModel ShareOfMachine(const TierModel& machine, int ranks) {
  CASTOR_CHECK_GE(ranks, 1);
  TierModel share = machine;
  const auto divide = [ranks](auto& speed) {
    if (!speed) return;
    speed->bytes_per_second =
        std::max<int64_t>(speed->bytes_per_second / ranks, 1);
  };
  divide(share.nvme_read);
  divide(share.nvme_write);
  divide(share.nvme_mixed);
  divide(share.memory);
  divide(share.optimizer);
  return share;
}

}  // namespace castor
