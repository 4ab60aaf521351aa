// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/arena_sums.h"

#include <map>
#include <utility>

namespace castor {

std::vector<ArenaSum> SumArenas(std::span<const RunArenaInfo> arenas) {
  std::map<std::pair<std::string, std::string>, ArenaSum> sums;
  for (const RunArenaInfo& arena : arenas) {
    ArenaSum& sum = sums[{arena.name, arena.allocator}];
    ++sum.ranks;
    sum.peak += arena.peak_bytes;
    sum.budget += arena.budget_bytes;
    sum.live += arena.live_bytes;
    sum.active += arena.active_bytes;
    sum.resident += arena.resident_bytes;
    sum.retained += arena.retained_bytes;
    sum.refused += arena.refused;
    sum.locked = sum.locked && arena.locked;
  }
  std::vector<ArenaSum> sorted;
  for (auto& [key, sum] : sums) {
    sum.name = key.first;
    sum.allocator = key.second;
    sorted.push_back(std::move(sum));
  }
  return sorted;
}

}  // namespace castor
