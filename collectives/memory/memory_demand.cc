// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/memory_demand.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "chunk/text/units_text.h"
#include "collectives/world/launch.h"

namespace castor::internal {
namespace {

// The least value above `low` for which `fits`, which once true stays true;
// empty where it is false up to `high`.
std::optional<Bytes> LeastThatFits(Bytes low, Bytes high,
                                   const std::function<bool(Bytes)>& fits) {
  if (high <= low || !fits(high)) return std::nullopt;
  while (high - low > Bytes(1)) {
    const Bytes middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

bool Fits(const MemoryDemand& demand,
          const std::function<bool(const HomeRoom&)>& homes_fit,
          const Budgets& budgets) {
  if (demand.FitsOnDevice(budgets.device)) return true;
  for (const HostScheme& scheme : HostSchemes(
           budgets, demand.windows, demand.staging_slot, demand.mixed())) {
    const std::optional<HomeRoom> room =
        demand.RoomForHomes(budgets, scheme, Bytes(0));
    if (room && homes_fit(*room)) return true;
  }
  return false;
}

}  // namespace

Bytes WithBuffers(Bytes raise, const Budgets& budgets) {
  // Others were given their size.
  if (budgets.buffers == Bytes(0) ||
      budgets.buffers !=
          ExchangeBufferFor(budgets.whole_device(), budgets.world)) {
    return raise;
  }
  Bytes whole = raise;
  for (;;) {
    const Bytes grown =
        ExchangeBufferFor(budgets.whole_device() + whole, budgets.world);
    const Bytes more = std::max(grown - budgets.buffers, Bytes(0));
    if (raise + more <= whole) return whole;
    whole = raise + more;
  }
}

int64_t WindowsOfAnUpdate(std::span<const ChunkStates> chunks) {
  int64_t most = 2;
  for (const ChunkStates& chunk : chunks) {
    most = std::max<int64_t>(
        most,
        std::count_if(chunk.device_bytes.begin(), chunk.device_bytes.end(),
                      [](Bytes bytes) { return bytes > Bytes(0); }));
  }
  return most;
}

std::vector<HostScheme> NvmeSchemes(int64_t windows, Bytes slot, Bytes host) {
  constexpr int64_t kPartOfHost = 6;
  const auto scheme = [&](int64_t updates, int64_t fetches) {
    return HostScheme{true, updates * windows + fetches, fetches};
  };
  std::vector<HostScheme> schemes;
  for (const int64_t updates : {8, 4}) {
    const HostScheme more = scheme(updates, 4);
    if (slot * more.staging_slots <= host / kPartOfHost) {
      schemes.push_back(more);
    }
  }
  for (const HostScheme& each : {scheme(2, 2), scheme(2, 0), scheme(1, 0)}) {
    schemes.push_back(each);
  }
  return schemes;
}

std::vector<HostScheme> HostSchemes(const Budgets& budgets, int64_t windows,
                                    Bytes slot, bool mixed) {
  std::vector<HostScheme> schemes = {
      {false, std::max(mixed ? windows : 0, kStagingWithoutNvme), 0}};
  if (budgets.nvme) {
    for (const HostScheme& scheme : NvmeSchemes(windows, slot, budgets.host)) {
      schemes.push_back(scheme);
    }
  }
  return schemes;
}

std::optional<HomeRoom> MemoryDemand::RoomForHomes(const Budgets& budgets,
                                                   const HostScheme& scheme,
                                                   Bytes ahead) const {
  const Bytes device_fixed = serving + ahead + ruled[0];
  const Bytes host_fixed = staging_slot * scheme.staging_slots + ruled[1];
  if (device_fixed > budgets.device || host_fixed > budgets.host) {
    return std::nullopt;
  }
  if (ruled[2] > (scheme.nvme ? *budgets.nvme : Bytes(0))) return std::nullopt;
  HomeRoom room;
  room.device = budgets.device - device_fixed;
  room.host = budgets.host - host_fixed;
  if (scheme.nvme) room.nvme = *budgets.nvme - ruled[2];
  return room;
}

bool MemoryDemand::FitsInto(const Budgets& budgets) const {
  return Fits(*this, HomesFit(chunks), budgets);
}

BudgetRaises MemoryDemand::SmallestRaises(const Budgets& budgets) const {
  Bytes off_device;
  for (const ChunkStates& chunk : chunks) {
    for (Bytes state : chunk.host_bytes) off_device += state;
  }
  const std::function<bool(const HomeRoom&)> homes_fit = HomesFit(chunks);
  const auto raise = [&](Bytes now, Bytes high,
                         const std::function<void(Budgets&, Bytes)>& set) {
    std::optional<Bytes> least = LeastThatFits(now, high, [&](Bytes value) {
      Budgets raised = budgets;
      set(raised, value);
      return Fits(*this, homes_fit, raised);
    });
    if (least) *least -= now;
    return least;
  };
  BudgetRaises raises;
  raises.device =
      raise(budgets.device, serving + all_on_device,
            [](Budgets& raised, Bytes value) { raised.device = value; });
  if (raises.device) *raises.device = WithBuffers(*raises.device, budgets);
  const Bytes most_host =
      off_device + staging_slot * 2 * (windows + 1) + ruled[1];
  raises.host =
      raise(budgets.host, most_host,
            [](Budgets& raised, Bytes value) { raised.host = value; });
  raises.nvme =
      raise(budgets.nvme.value_or(Bytes(0)), off_device + ruled[2],
            [](Budgets& raised, Bytes value) { raised.nvme = value; });

  // A device that holds the slots and no state, or an eighth of the way from
  // there to what is enough alone, and so on.
  if (!raises.device) return raises;
  Bytes alone = *raises.device;
  if (raises.host) alone = std::min(alone, *raises.host);
  const Bytes least = std::max(serving + ruled[0] - budgets.device, Bytes(0));
  for (int part = 0; part < 8 && least < *raises.device; ++part) {
    Budgets raised = budgets;
    const Bytes by = least + (*raises.device - least) / 8 * part;
    raised.device += by;
    const std::optional<Bytes> host =
        LeastThatFits(budgets.host, most_host, [&](Bytes value) {
          raised.host = value;
          return Fits(*this, homes_fit, raised);
        });
    if (!host) continue;
    const BudgetRaises::Both both = {WithBuffers(by, budgets),
                                     *host - budgets.host};
    const Bytes known = raises.both ? raises.both->total() : alone * 9 / 10;
    if (both.total() < known) raises.both = both;
  }
  return raises;
}

}  // namespace castor::internal
