// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_ARENA_SUMS_H_
#define CASTOR_TOOLS_REPORT_ARENA_SUMS_H_

// The pinned arenas of a run, over its ranks. Pure function, thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "placement/run_event.h"

namespace castor {

// The arenas of one name and one allocator, as in RunArenaInfo.
struct ArenaSum {
  std::string name;
  std::string allocator;
  int64_t ranks = 0;
  int64_t peak = 0;
  int64_t budget = 0;
  int64_t live = 0;
  int64_t active = 0;
  int64_t resident = 0;
  int64_t retained = 0;
  int64_t refused = 0;
  bool locked = true;  // all of them
};

// By name, then by allocator.
std::vector<ArenaSum> SumArenas(std::span<const RunArenaInfo> arenas);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_ARENA_SUMS_H_
