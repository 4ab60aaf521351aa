// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>

#include "chunk/base/check.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

// The way to the device and back first, then the wire.
std::vector<LinkId> AllLinks() {
  constexpr auto kMove = RunEventKind::kTransfer;
  using enum Tier;
  return {
      {kMove, kHost, kDevice},
      {kMove, kDevice, kHost},
      {kMove, kNvme, kHost},
      {kMove, kHost, kNvme},
      {kMove, kNvme, kDevice},
      {kMove, kDevice, kNvme},
      {kMove, kDevice, kDevice},
      {kMove, kHost, kHost},
      {kMove, kNvme, kNvme},
      {RunEventKind::kGather, kDevice, kDevice},
      {RunEventKind::kReduceScatter, kDevice, kDevice},
  };
}

}  // namespace

bool MovesBytes(const RunEvent& event) {
  return event.kind == RunEventKind::kTransfer ||
         event.kind == RunEventKind::kGather ||
         event.kind == RunEventKind::kReduceScatter;
}

LinkId LinkOf(const RunEvent& event) {
  CASTOR_CHECK(MovesBytes(event));
  if (event.kind != RunEventKind::kTransfer) return {event.kind};
  return {event.kind, event.from, event.to};
}

std::string LinkName(const LinkId& link) {
  if (link.kind == RunEventKind::kGather) return "all-gather";
  if (link.kind == RunEventKind::kReduceScatter) return "reduce-scatter";
  return fmt::format("{} -> {}", TierName(link.from), TierName(link.to));
}

std::vector<LinkStatistics> ComputeLinkStatistics(
    const RunRecord& record, std::span<const StepWindow> windows,
    const StepRange& steps, int parts) {
  const int32_t last = LastStep(record);
  const std::vector<LinkId> ids = AllLinks();
  std::vector<LinkStatistics> all(ids.size());
  std::vector<std::map<int32_t, std::vector<Interval>>> times(ids.size());
  for (const RunEvent& event : record.events) {
    if (!MovesBytes(event)) continue;
    const auto found = std::find(ids.begin(), ids.end(), LinkOf(event));
    const auto i = static_cast<size_t>(found - ids.begin());
    if (event.step < 1 || event.step > last) {
      all[i].outside_bytes += event.bytes;
      continue;
    }
    if (!steps.Holds(event.step)) continue;
    ++all[i].count;
    all[i].bytes += event.bytes;
    all[i].bytes_by_cause[static_cast<size_t>(event.cause)] += event.bytes;
    times[i][event.rank].push_back({event.begin_ns, event.end_ns});
  }

  int64_t step_ns = 0;
  for (const StepWindow& window : windows) step_ns += window.time.length();

  std::vector<LinkStatistics> used;
  for (size_t i = 0; i < ids.size(); ++i) {
    LinkStatistics& link = all[i];
    if (link.count == 0 && link.outside_bytes == 0) continue;
    link.link = ids[i];
    link.over_step.resize(static_cast<size_t>(parts));
    for (auto& [rank, intervals] : times[i]) {
      link.busy[rank] = Union(std::move(intervals));
      link.busy_ns += Length(link.busy[rank]);
    }
    double inside_ns = 0;
    for (const StepWindow& window : windows) {
      const IntervalSet& busy = link.busy[window.rank];
      AddShares(busy, window.time, 1.0 / static_cast<double>(windows.size()),
                link.over_step);
      double share[1] = {0};
      AddShares(busy, window.time, 1, share);
      inside_ns += share[0] * static_cast<double>(window.time.length());
    }
    if (step_ns > 0) {
      link.busy_share = inside_ns / static_cast<double>(step_ns);
    }
    used.push_back(std::move(link));
  }
  return used;
}

}  // namespace castor
