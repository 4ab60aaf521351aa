// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/step_windows.h"

#include <algorithm>
#include <map>
#include <utility>

namespace castor {

int32_t LastStep(const RunRecord& record) {
  int32_t last = 0;
  for (const RunEvent& event : record.events) {
    if (event.kind == RunEventKind::kStep || !record.completeness.ok()) {
      last = std::max(last, event.step);
    }
  }
  return last;
}

std::vector<StepWindow> FindStepWindows(const RunRecord& record,
                                        const StepRange& steps) {
  const int32_t last = LastStep(record);
  std::map<std::pair<int32_t, int32_t>, StepWindow> found;
  for (const RunEvent& event : record.events) {
    if (!steps.Holds(event.step) || event.step > last) continue;
    const auto [it, is_new] =
        found.try_emplace(std::pair(event.rank, event.step));
    StepWindow& window = it->second;
    const Interval time = {event.begin_ns, event.end_ns};
    if (is_new || event.kind == RunEventKind::kStep) {
      window = {event.rank, event.step, time,
                event.kind == RunEventKind::kStep};
    } else if (!window.complete) {
      window.time.begin = std::min(window.time.begin, time.begin);
      window.time.end = std::max(window.time.end, time.end);
    }
  }
  std::vector<StepWindow> windows;
  for (auto& [rank_and_step, window] : found) {
    // What is fetched ahead for a step begins before the step does.
    if (!windows.empty() && windows.back().rank == window.rank) {
      window.time.begin = std::max(window.time.begin, windows.back().time.end);
    }
    if (window.time.begin < window.time.end) windows.push_back(window);
  }
  return windows;
}

}  // namespace castor
