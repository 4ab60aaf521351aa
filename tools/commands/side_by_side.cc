// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/side_by_side.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "offload/lanes/start_thread.h"

namespace castor {
namespace {

size_t Cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return static_cast<size_t>(std::max(CPU_COUNT(&allowed), 1));
}

}  // namespace

void SideBySide(size_t count, const std::function<void(size_t)>& task,
                size_t at_once) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < std::min({count, Cores(), at_once})) {
      others.push_back(StartThread(work));
    }
  } catch (const ThreadLimit&) {
    // Those that there are do the work.
  }
  work();
  for (std::thread& thread : others) thread.join();
}

}  // namespace castor
