// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/machine/step_cost.h"

#include <algorithm>

#include "chunk/base/check.h"

namespace castor {
namespace {

// Sweeps over the parameters in one step: forward and backward.
constexpr int kSweeps = 2;

std::optional<double> OverLink(const std::optional<LinkModel>& link,
                               int64_t transfers, Bytes bytes) {
  if (transfers == 0) return 0.0;
  if (!link) return std::nullopt;
  return LinkSeconds(*link, transfers, bytes);
}

std::optional<double> OverRing(const std::optional<RingModel>& ring,
                               int64_t calls, Bytes bytes, int world) {
  if (calls == 0 || world == 1) return 0.0;
  if (!ring) return std::nullopt;
  return RingSeconds(*ring, calls, bytes, world);
}

}  // namespace

std::string_view StepLinkName(StepLink link) {
  switch (link) {
    case StepLink::kHostToDevice:
      return "host_to_device";
    case StepLink::kDeviceToHost:
      return "device_to_host";
    case StepLink::kAllGather:
      return "all_gather";
    case StepLink::kReduceScatter:
      return "reduce_scatter";
  }
  return "unknown";
}

std::optional<double> StepCost::overlapped_seconds() const {
  double slowest = 0;
  for (const std::optional<double>& seconds : link_seconds) {
    if (!seconds) return std::nullopt;
    slowest = std::max(slowest, *seconds);
  }
  return slowest;
}

std::optional<double> StepCost::serial_seconds() const {
  double sum = 0;
  for (const std::optional<double>& seconds : link_seconds) {
    if (!seconds) return std::nullopt;
    sum += *seconds;
  }
  return sum;
}

StepCost ModelStep(const TierModel& model, const StepLoad& load, int world) {
  CASTOR_CHECK_GE(load.chunks, 0);
  CASTOR_CHECK_GE(load.allocated, Bytes(0));
  CASTOR_CHECK_GE(world, 1);
  // No rest: a chunk is a multiple of 128 elements for each rank.
  const Bytes shards = load.allocated / world;
  const int64_t fetches = kSweeps * load.chunks;
  const int64_t reductions = load.trainable ? load.chunks : 0;
  StepCost cost;
  cost.link_seconds = {
      OverLink(model.host_to_device, fetches, shards * kSweeps),
      OverLink(model.device_to_host, reductions, shards),
      OverRing(model.all_gather, fetches, load.allocated * kSweeps, world),
      OverRing(model.reduce_scatter, reductions, load.allocated, world)};
  return cost;
}

StepCost operator+(const StepCost& a, const StepCost& b) {
  StepCost sum;
  for (size_t i = 0; i < a.link_seconds.size(); ++i) {
    if (a.link_seconds[i] && b.link_seconds[i]) {
      sum.link_seconds[i] = *a.link_seconds[i] + *b.link_seconds[i];
    }
  }
  return sum;
}

}  // namespace castor
