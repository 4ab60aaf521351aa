// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/fetch_costs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/memory/chunk_states.h"
#include "placement/run_event.h"

namespace castor::internal {
namespace {

// Nothing that is fetched is free, however fast a machine is said to be.
constexpr double kLeastSeconds = 1e-9;

int64_t LegNs(double seconds) {
  return std::llround(std::min(seconds * 1e9, static_cast<double>(kMaxLegNs)));
}

// Adds up the seconds of fetches, and notes the links that nobody measured.
class Fetches {
 public:
  explicit Fetches(const TierModel& machine) : machine_(machine) {}

  // Of the whole, and of the shard's way from home, if others bring the rest.
  struct Fetch {
    double cost = 0;
    double shard_cost = 0;
    FetchLegs legs{};
  };
  Fetch Seconds(const ChunkLayout& layout, const Sharding& sharding,
                ChunkId chunk, Tier home) {
    const DType dtype = layout.dtype(chunk);
    const ShardRange range = sharding.kept(StateKind::kParam, layout, chunk);
    const Bytes kept = BytesOf(range.end - range.begin, dtype);
    double drive = 0;
    double link = 0;
    double ring = 0;
    if (home == Tier::kNvme) {
      drive = Link(machine_.nvme_read, "nvme_read", RoundUp(kept, kHostAlign));
    }
    if (home != Tier::kDevice) {
      link = Link(machine_.host_to_device, "host_to_device", kept);
    }
    Fetch fetch;
    if (!sharding.replicated(StateKind::kParam)) {
      fetch.shard_cost = drive + link;
      if (machine_.all_gather) {
        ring = RingSeconds(*machine_.all_gather, 1,
                           BytesOf(layout.chunk(chunk).size, dtype),
                           sharding.pieces(StateKind::kParam));
      } else {
        Miss("all_gather");
      }
    }
    fetch.cost = std::max(drive + link + ring, kLeastSeconds);
    fetch.legs = {LegNs(drive), LegNs(link), LegNs(ring)};
    return fetch;
  }

  const std::string& unknown() const { return unknown_; }

 private:
  double Link(const std::optional<LinkModel>& link, std::string_view name,
              Bytes bytes) {
    if (link) return LinkSeconds(*link, 1, bytes);
    Miss(name);
    return 0;
  }
  void Miss(std::string_view name) {
    if (unknown_.find(name) != unknown_.npos) return;
    if (!unknown_.empty()) unknown_ += ", ";
    unknown_ += name;
  }

  const TierModel& machine_;
  std::string unknown_;
};

}  // namespace

FetchCosts FetchCostsOf(const ChunkLayout& layout, const Sharding& sharding,
                        std::span<const ChunkHomes> homes,
                        const std::optional<TierModel>& machine) {
  constexpr auto kParam = static_cast<size_t>(StateKind::kParam);
  FetchCosts costs;
  const bool shards = !sharding.replicated(StateKind::kParam);
  if (machine) {
    Fetches fetches(*machine);
    for (size_t c = 0; c < homes.size(); ++c) {
      const Fetches::Fetch fetch = fetches.Seconds(
          layout, sharding, ChunkId(static_cast<int32_t>(c)), homes[c][kParam]);
      costs.cost.push_back(fetch.cost);
      costs.legs.push_back(fetch.legs);
      if (shards) costs.shard_cost.push_back(fetch.shard_cost);
    }
    if (fetches.unknown().empty()) {
      costs.unit = FetchCostUnit::kSeconds;
      return costs;
    }
    costs.unknown = fetches.unknown();
    costs.cost.clear();
    costs.legs.clear();
    costs.shard_cost.clear();
  }
  for (const ChunkHomes& of_chunk : homes) {
    costs.cost.push_back(FetchCost(of_chunk[kParam]));
    if (!shards) continue;
    costs.shard_cost.push_back(costs.cost.back() - FetchCost(Tier::kDevice));
  }
  return costs;
}

}  // namespace castor::internal
