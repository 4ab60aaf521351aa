// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/static_homes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"
#include "placement/run_event.h"

namespace castor::internal {
namespace {

constexpr Bytes kPlenty{std::numeric_limits<int64_t>::max() / 4};

Bytes SlotBytes(const ChunkStates& chunk, size_t kind, Tier tier) {
  return tier == Tier::kDevice ? chunk.device_bytes[kind]
                               : chunk.host_bytes[kind];
}

Bytes HomesOn(const StaticPlacement& placement, Tier tier) {
  Bytes sum;
  for (const auto& of_state : placement.bytes) sum += of_state[TierIndex(tier)];
  return sum;
}

// In order of preference: no staging where the host does no update.
std::vector<HostScheme> StagingChoices(std::span<const ChunkStates> chunks,
                                       const StaticPlacement& placement,
                                       const WorkingSet& work, Bytes host) {
  int64_t most = 0;  // windows of one update that are not host memory
  bool off_device = false;
  for (size_t c = 0; c < chunks.size(); ++c) {
    int64_t staged = 0;
    bool whole = true;
    for (size_t k = 0; k < kStateKinds; ++k) {
      if (chunks[c].device_bytes[k] == Bytes(0)) continue;
      staged += placement.homes[c][k] != Tier::kHost;
      whole = whole && placement.homes[c][k] == Tier::kDevice;
    }
    if (whole) continue;
    off_device = true;
    most = std::max(most, staged);
  }
  if (!off_device) return {HostScheme()};
  if (HomesOn(placement, Tier::kNvme) > Bytes(0)) {
    return NvmeSchemes(work.windows, work.staging_slot, host);
  }
  return {{false, std::max(most, kStagingWithoutNvme), 0}};
}

std::string StatesOn(const StaticPlacement& placement, Tier tier) {
  std::string parts;
  for (size_t k = 0; k < kStateKinds; ++k) {
    const Bytes bytes = placement.bytes[k][TierIndex(tier)];
    if (bytes == Bytes(0)) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ",
                         placement.names.of(static_cast<StateKind>(k)),
                         FormatBytes(bytes));
  }
  return parts.empty() ? std::string("no state") : parts;
}

struct TierNeed {
  Tier tier;
  Bytes work;
  std::string_view for_what;
  Bytes budget;
};

}  // namespace

Result<StaticPlacement> PlaceAsAsked(std::span<const ChunkStates> chunks,
                                     const StateNames& names,
                                     const StaticLimits& limits,
                                     std::span<const ChunkBindings> bindings,
                                     bool has_nvme) {
  HomeProblem problem;
  problem.chunks.assign(chunks.begin(), chunks.end());
  problem.device = problem.host = kPlenty;
  if (has_nvme) problem.nvme = kPlenty;
  problem.names = names;
  return PlaceStatically(problem, limits, bindings);
}

Result<WorkingRoom> FitBesideHomes(std::span<const ChunkStates> chunks,
                                   const StaticPlacement& placement,
                                   const WorkingSet& work,
                                   const Budgets& budgets) {
  const std::vector<HostScheme> staging =
      StagingChoices(chunks, placement, work, budgets.host);
  const TierNeed needs[] = {
      {Tier::kDevice, work.serving + budgets.buffers,
       budgets.buffers > Bytes(0)
           ? "gathered chunks, leases and exchanges between ranks"
           : "gathered chunks and leases",
       budgets.whole_device()},
      {Tier::kHost, work.staging_slot * staging.back().staging_slots, "staging",
       budgets.host},
      {Tier::kNvme, Bytes(0), "", budgets.nvme.value_or(Bytes(0))}};
  std::string lacks;
  std::array<Bytes, 3> lacking;
  for (const TierNeed& need : needs) {
    const Bytes homes = HomesOn(placement, need.tier);
    if (homes + need.work <= need.budget) continue;
    const Bytes short_of = homes + need.work - need.budget;
    lacking[TierIndex(need.tier)] =
        need.tier == Tier::kDevice ? WithBuffers(short_of, budgets) : short_of;
    lacks +=
        fmt::format("{}{} is to be home to {} ({}){}, and its budget is {}",
                    lacks.empty() ? "" : "; and ", TierName(need.tier),
                    FormatBytes(homes), StatesOn(placement, need.tier),
                    need.work > Bytes(0)
                        ? fmt::format(" beside {} for {}",
                                      FormatBytes(need.work), need.for_what)
                        : std::string(),
                    BudgetText(need.budget));
  }
  if (!lacks.empty()) {
    return DoesNotFit(lacks, {{lacking[0], lacking[1], lacking[2]}},
                      "or lower the limits of what is to live there");
  }
  WorkingRoom room;
  room.ahead = work.most_ahead;
  const Bytes device =
      budgets.device - work.serving - HomesOn(placement, Tier::kDevice);
  while (work.slot_ahead * room.ahead > device) --room.ahead;
  room.staging = *std::find_if(
      staging.begin(), staging.end(), [&](const HostScheme& scheme) {
        return work.staging_slot * scheme.staging_slots <=
               budgets.host - HomesOn(placement, Tier::kHost);
      });
  return room;
}

Status TakeRuled(std::span<const ChunkBindings> bindings, bool has_nvme,
                 const StateNames& names, std::span<ChunkStates> chunks,
                 std::array<Bytes, 3>& ruled) {
  for (size_t c = 0; c < bindings.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StateBinding& binding = bindings[c][k];
      const Bytes bytes = SlotBytes(chunks[c], k, binding.tier);
      if (binding.rule < 0 || bytes == Bytes(0)) continue;
      if (binding.tier == Tier::kNvme && !has_nvme) {
        return Infeasible(fmt::format(
            "rule {} puts {} of chunk {} on NVMe, and there is no NVMe tier: "
            "give a directory for it",
            binding.rule, names.of(static_cast<StateKind>(k)), c));
      }
      ruled[TierIndex(binding.tier)] += bytes;
      chunks[c].device_bytes[k] = chunks[c].host_bytes[k] = Bytes(0);
    }
  }
  return OkStatus();
}

StaticPlacement PlacementOf(std::span<const ChunkStates> chunks,
                            const StateNames& names,
                            std::span<const ChunkHomes> homes) {
  StaticPlacement placement;
  placement.names = names;
  placement.homes.assign(homes.begin(), homes.end());
  for (size_t c = 0; c < chunks.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      placement.bytes[k][TierIndex(homes[c][k])] +=
          SlotBytes(chunks[c], k, homes[c][k]);
    }
  }
  return placement;
}

void ApplyRuled(std::span<const ChunkBindings> bindings,
                std::span<const ChunkStates> chunks,
                std::span<ChunkHomes> homes) {
  for (size_t c = 0; c < bindings.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const StateBinding& binding = bindings[c][k];
      if (binding.rule < 0) continue;
      if (chunks[c].device_bytes[k] > Bytes(0)) homes[c][k] = binding.tier;
    }
  }
}

}  // namespace castor::internal
