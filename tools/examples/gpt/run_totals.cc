// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/run_totals.h"

#include <fmt/format.h>

#include <algorithm>

#include "offload/nvme/nvme_option.h"

namespace castor::gpt {

EngineStats Combined(std::span<const EngineStats> ranks) {
  EngineStats all;
  for (const EngineStats& rank : ranks) {
    for (Tier tier : kAllTiers) {
      TierUse& use = all.tiers[TierIndex(tier)];
      const TierUse& other = rank.tiers[TierIndex(tier)];
      use.budget = std::max(use.budget, other.budget);
      use.peak = std::max(use.peak, other.peak);
      use.in_use = std::max(use.in_use, other.in_use);
      for (Tier to : kAllTiers) {
        all.moved[TierIndex(tier)][TierIndex(to)] +=
            rank.moved[TierIndex(tier)][TierIndex(to)];
      }
    }
    all.most_nvme_written += rank.most_nvme_written;
    all.wire_sent += rank.wire_sent;
    all.gathers += rank.gathers;
    all.prefetched_gathers += rank.prefetched_gathers;
    all.reduce_scatters += rank.reduce_scatters;
    all.divergences += rank.divergences;
    all.stall_ns += rank.stall_ns;
    all.stalls += rank.stalls;
  }
  return all;
}

PinnedArenaStats Combined(std::span<const PinnedArenaStats> arenas) {
  PinnedArenaStats all;
  all.allocator = arenas.front().allocator;
  all.slab = {.locked = true, .bound = true, .huge_pages = true};
  for (const PinnedArenaStats& arena : arenas) {
    all.slab.locked = all.slab.locked && arena.slab.locked;
    all.slab.bound = all.slab.bound && arena.slab.bound;
    all.budget += arena.budget;
    all.peak += arena.peak;
    all.requested += arena.requested;
    all.buffers += arena.buffers;
    all.refused += arena.refused;
    all.live += arena.live;
    all.active += arena.active;
    all.resident += arena.resident;
    all.retained += arena.retained;
    all.metadata += arena.metadata;
  }
  return all;
}

RankLinks Combined(std::span<const RankLinks> ranks) {
  RankLinks all;
  for (const RankLinks& rank : ranks) {
    for (const auto link : {&RankLinks::to_device, &RankLinks::from_device,
                            &RankLinks::nvme_read, &RankLinks::nvme_write}) {
      (all.*link).transfers += (rank.*link).transfers;
      (all.*link).bytes += (rank.*link).bytes;
      (all.*link).busy_ns += (rank.*link).busy_ns;
    }
  }
  return all;
}

double TokensPerSecond(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

double BusySeconds(const LinkUse& link) {
  return static_cast<double>(link.busy_ns) * 1e-9;
}

double StalledSeconds(const EngineStats& all) {
  return static_cast<double>(all.stall_ns) * 1e-9;
}

double StalledShare(const TrainOptions& options, const TrainOutcome& outcome,
                    const EngineStats& all) {
  const double time = outcome.seconds * options.ranks;
  return time > 0 ? StalledSeconds(all) / time : 0;
}

bool HasLimit(const TrainOptions& options, Tier tier) {
  return tier != Tier::kNvme || (!options.engine.nvme.empty() &&
                                 NvmeLimit(options.engine.nvme).has_value());
}

std::string Hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

}  // namespace castor::gpt
