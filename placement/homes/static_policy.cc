// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/homes/static_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <tuple>

#include "chunk/base/check.h"
#include "chunk/base/tier.h"
#include "chunk/text/quote.h"
#include "chunk/text/raises_text.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

constexpr Bytes kNoLimit{std::numeric_limits<int64_t>::max()};

size_t Index(StateKind kind) { return static_cast<size_t>(kind); }

Bytes SlotBytes(const ChunkStates& chunk, StateKind kind, Tier tier) {
  return tier == Tier::kDevice ? chunk.device_bytes[Index(kind)]
                               : chunk.host_bytes[Index(kind)];
}

bool Exists(const ChunkStates& chunk, StateKind kind) {
  return chunk.device_bytes[Index(kind)] > Bytes(0);
}

// Places the chunks of one state.
class StatePlacer {
 public:
  StatePlacer(const HomeProblem& problem, StateKind kind,
              std::span<const ChunkBindings> bindings,
              StaticPlacement& placement)
      : problem_(problem),
        kind_(kind),
        bindings_(bindings),
        placement_(placement) {
    for (size_t c = 0; c < problem.chunks.size(); ++c) {
      if (!Exists(problem.chunks[c], kind)) continue;
      for (Tier tier : kAllTiers) {
        total_[TierIndex(tier)] += SlotBytes(problem.chunks[c], kind, tier);
      }
      if (Bound(c)) {
        ruled_.push_back(c);
      } else {
        free_.push_back(c);
      }
    }
    // 2^64 over the golden section. Steps of it modulo 2^64 never meet.
    constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
    std::sort(free_.begin(), free_.end(), [&](size_t a, size_t b) {
      return std::tuple(SlotBytes(problem.chunks[a], kind, Tier::kDevice),
                        a * kStep) <
             std::tuple(SlotBytes(problem.chunks[b], kind, Tier::kDevice),
                        b * kStep);
    });
  }

  Status Place(const StateLimits& limits) {
    const std::optional<StateLimit>* given[] = {&limits.device, &limits.host,
                                                &limits.nvme};
    std::array<Bytes, 3> most;  // by TierIndex
    for (Tier tier : kAllTiers) {
      CASTOR_ASSIGN_OR_RETURN(most[TierIndex(tier)],
                              Limit(*given[TierIndex(tier)], tier));
    }
    CASTOR_RETURN_IF_ERROR(PlaceRuled(most));
    if (!limits.device) most[0] = Bytes(0);  // for what is free
    if (!problem_.nvme) most[2] = Bytes(0);
    size_t next = 0;
    for (Tier tier : kAllTiers) {
      while (next < free_.size() && Fits(free_[next], tier, most)) {
        Put(free_[next++], tier);
      }
    }
    if (next == free_.size()) return OkStatus();
    Bytes left;
    for (; next < free_.size(); ++next) {
      left += SlotBytes(problem_.chunks[free_[next]], kind_, Tier::kHost);
    }
    return Infeasible(fmt::format(
        "the limits of {} leave {} of it over: the device takes {}, the host "
        "{}, {}; raise a limit, or leave the last tier's out",
        Name(), FormatBytes(left), FormatBytes(Placed(0)),
        FormatBytes(Placed(1)),
        problem_.nvme ? fmt::format("NVMe {}", FormatBytes(Placed(2)))
                      : std::string("and there is no NVMe tier")));
  }

 private:
  const StateBinding* Bound(size_t chunk) const {
    if (bindings_.empty()) return nullptr;
    const StateBinding& binding = bindings_[chunk][Index(kind_)];
    return binding.rule < 0 ? nullptr : &binding;
  }

  std::string_view Name() const { return problem_.names.of(kind_); }

  Bytes Placed(size_t tier) const {
    return placement_.bytes[Index(kind_)][tier];
  }

  Result<Bytes> Limit(const std::optional<StateLimit>& limit, Tier tier) const {
    if (!limit) return kNoLimit;
    if (const Bytes* bytes = std::get_if<Bytes>(&*limit)) {
      if (*bytes >= Bytes(0)) return *bytes;
      return InvalidArgument(
          fmt::format("a limit of {} bytes of {} on {} is negative",
                      bytes->count(), Name(), TierName(tier)));
    }
    const double part = std::get<double>(*limit);
    if (!(part >= 0 && part <= 1)) {
      return InvalidArgument(
          fmt::format("a part of {} of {} on {} has no meaning: 0 to 1", part,
                      Name(), TierName(tier)));
    }
    // To the nearest byte: 0.29 of 100 chunks is 29 of them, though 0.29 has no
    // exact binary form.
    const Bytes total = total_[TierIndex(tier)];
    return std::min(
        total, Bytes(std::llround(part * static_cast<double>(total.count()))));
  }

  Status PlaceRuled(const std::array<Bytes, 3>& most) {
    for (size_t c : ruled_) {
      const StateBinding& binding = *Bound(c);
      if (binding.tier == Tier::kNvme && !problem_.nvme) {
        return Infeasible(fmt::format(
            "rule {} puts {} of chunk {} on NVMe, and there is no NVMe tier: "
            "give a directory for it",
            binding.rule, Name(), c));
      }
      Put(c, binding.tier);
    }
    for (Tier tier : kAllTiers) {
      const Bytes placed = Placed(TierIndex(tier));
      if (placed <= most[TierIndex(tier)]) continue;
      return Infeasible(fmt::format(
          "rules put {} of {} on {}, and its limit there is {}; raise it by "
          "{}, or let fewer parameters match",
          FormatBytes(placed), Name(), TierName(tier),
          FormatBytes(most[TierIndex(tier)]),
          FormatBytes(placed - most[TierIndex(tier)])));
    }
    return OkStatus();
  }

  bool Fits(size_t chunk, Tier tier, const std::array<Bytes, 3>& most) const {
    const Bytes room = most[TierIndex(tier)] - Placed(TierIndex(tier));
    return SlotBytes(problem_.chunks[chunk], kind_, tier) <= room;
  }

  void Put(size_t chunk, Tier tier) {
    placement_.homes[chunk][Index(kind_)] = tier;
    placement_.bytes[Index(kind_)][TierIndex(tier)] +=
        SlotBytes(problem_.chunks[chunk], kind_, tier);
  }

  const HomeProblem& problem_;
  StateKind kind_;
  std::span<const ChunkBindings> bindings_;
  StaticPlacement& placement_;
  std::array<Bytes, 3> total_;  // of the whole state, by TierIndex
  std::vector<size_t> ruled_;
  std::vector<size_t> free_;  // in the order in which they are taken
};

// Whether each tier has room for all states it is to hold.
Status CheckRoom(const HomeProblem& problem, const StaticPlacement& placement) {
  const Bytes rooms[] = {problem.device, problem.host,
                         problem.nvme.value_or(Bytes(0))};
  std::string lacks;
  std::array<Bytes, 3> lacking;
  for (Tier tier : kAllTiers) {
    const size_t t = TierIndex(tier);
    Bytes sum;
    std::string parts;
    for (size_t k = 0; k < kStateKinds; ++k) {
      const Bytes bytes = placement.bytes[k][t];
      if (bytes == Bytes(0)) continue;
      sum += bytes;
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ",
                           placement.names.of(static_cast<StateKind>(k)),
                           FormatBytes(bytes));
    }
    if (sum <= rooms[t]) continue;
    lacks += fmt::format("{}{} is to be home to {} ({}) and has room for {}",
                         lacks.empty() ? "" : "; and ", TierName(tier),
                         FormatBytes(sum), parts, FormatBytes(rooms[t]));
    lacking[t] = sum - rooms[t];
  }
  if (lacks.empty()) return OkStatus();
  return DoesNotFit(lacks, {{lacking[0], lacking[1], lacking[2]}},
                    "or lower the limits of what is to live there",
                    problem.nvme.has_value());
}

}  // namespace

Result<StaticPlacement> PlaceStatically(
    const HomeProblem& problem, const StaticLimits& limits,
    std::span<const ChunkBindings> bindings) {
  CASTOR_CHECK(bindings.empty() || bindings.size() == problem.chunks.size());
  StaticPlacement placement;
  placement.names = problem.names;
  placement.homes.resize(problem.chunks.size());
  for (size_t k = 0; k < kStateKinds; ++k) {
    const auto kind = static_cast<StateKind>(k);
    StatePlacer placer(problem, kind, bindings, placement);
    CASTOR_RETURN_IF_ERROR(placer.Place(limits[k]));
    for (size_t c = 0; c < problem.chunks.size(); ++c) {
      if (Exists(problem.chunks[c], kind)) continue;
      placement.homes[c][k] = placement.homes[c][Index(StateKind::kParam)];
    }
  }
  CASTOR_RETURN_IF_ERROR(CheckRoom(problem, placement));
  return placement;
}

std::string ExplainPlacement(const StaticPlacement& placement,
                             std::span<const ChunkBindings> bindings,
                             std::span<const PlacementRule> rules,
                             std::span<const ParamSpec> params, ChunkId chunk,
                             StateKind state) {
  const Tier tier = placement.homes[chunk.index()][Index(state)];
  std::string text = fmt::format("chunk {}: {} on {}", chunk.value(),
                                 placement.names.of(state), TierName(tier));
  if (!bindings.empty()) {
    const StateBinding& binding = bindings[chunk.index()][Index(state)];
    if (binding.rule >= 0) {
      return text +
             fmt::format(" by rule {} ({}), which matches {}", binding.rule,
                         RuleText(rules[static_cast<size_t>(binding.rule)]),
                         Quoted(params[binding.param.index()].name));
    }
  }
  return text + fmt::format(
                    " by the limits, which put {} of {} there",
                    FormatBytes(placement.bytes[Index(state)][TierIndex(tier)]),
                    placement.names.of(state));
}

}  // namespace castor
