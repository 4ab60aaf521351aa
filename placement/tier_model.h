// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TIER_MODEL_H_
#define CASTOR_PLACEMENT_TIER_MODEL_H_

// How fast this machine moves bytes: latency plus bytes over bandwidth, for
// every link that somebody measured (`castor probe`) or declared. What nobody
// did is unknown and stays empty: nothing has a default speed. Values and pure
// functions, thread-safe.

#include <cstdint>
#include <optional>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

// A megabyte and a petabyte in a second, and ten minutes: numbers beyond are
// slips of the unit. At a slower rate a step may take longer than a clock of
// nanoseconds can say.
inline constexpr int64_t kMinBytesPerSecond = 1'000'000;
inline constexpr int64_t kMaxBytesPerSecond = 1'000'000'000'000'000;
inline constexpr int64_t kMaxLatencyNs = 600'000'000'000;

// A link between two tiers of one rank.
struct LinkModel {
  int64_t bytes_per_second = 0;  // positive
  int64_t latency_ns = 0;        // of one transfer; not negative

  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

// A ring collective over ranks: a chunk goes round in world - 1 steps, each of
// which takes the latency and moves one shard (Thakur, Rabenseifner and Gropp
// 2005; NCCL's own model of its rings).
struct RingModel {
  // What one rank sends and receives, as nccl-tests' bus bandwidth; positive.
  int64_t bytes_per_second = 0;
  int64_t step_latency_ns = 0;  // not negative

  friend bool operator==(const RingModel&, const RingModel&) = default;
};

// A rate that several kinds of work share, without transfers of its own.
struct RateModel {
  int64_t bytes_per_second = 0;  // positive

  friend bool operator==(const RateModel&, const RateModel&) = default;
};

struct TierModel {
  // The other direction is idle.
  std::optional<LinkModel> host_to_device = {};
  std::optional<LinkModel> device_to_host = {};
  // The other direction is as busy: what this one alone then moves.
  std::optional<LinkModel> host_to_device_duplex = {};
  std::optional<LinkModel> device_to_host_duplex = {};
  // All drives of the machine that Castor was given, requests enough under way.
  std::optional<LinkModel> nvme_read = {};   // to host
  std::optional<LinkModel> nvme_write = {};  // from host
  // Every other request writes: bytes read and bytes written together.
  std::optional<LinkModel> nvme_mixed = {};
  std::optional<RingModel> all_gather = {};
  std::optional<RingModel> reduce_scatter = {};
  // Host memory: bytes read and bytes written, by all cores together. Copies
  // through it and the optimizer share this.
  std::optional<RateModel> memory = {};
  // Updates on all cores of the host, UpdateBytes counted.
  std::optional<RateModel> optimizer = {};

  friend bool operator==(const TierModel&, const TierModel&) = default;
};

// Ok, or InvalidArgument naming the first number that is out of the limits
// above, by its keys in a machine's file.
Status CheckTierModel(const TierModel& model);

// Seconds of `transfers` transfers, one after the other, that move `bytes` in
// all: transfers * latency + bytes / bandwidth. REQUIRES: neither is negative.
double LinkSeconds(const LinkModel& link, int64_t transfers, Bytes bytes);

// Seconds of `calls` collectives, one after the other, on chunks that hold
// `bytes` in all when whole: calls * (world - 1) * latency +
// (world - 1) / world * bytes / bandwidth. 0 for a world of one. REQUIRES:
// neither is negative, world >= 1.
double RingSeconds(const RingModel& ring, int64_t calls, Bytes bytes,
                   int world);

// A rank's share of a machine on which `ranks` ranks do the same at the same
// time: an even part of memory, the optimizer's cores and the drives; links to
// devices are its own. REQUIRES: ranks >= 1.
TierModel ShareOfMachine(const TierModel& machine, int ranks);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TIER_MODEL_H_
