// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/run_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "chunk/base/stable_sort.h"
#include "chunk/base/tier.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

bool ParseStep(std::string_view text, int32_t* step) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *step);
  return error == std::errc() && rest == end && *step >= 1;
}

// Whether the event brings a chunk into a slot, all of it or the shard from
// which it will be gathered.
bool Fetches(const RunEvent& event) {
  if (event.cause != RunCause::kDemand && event.cause != RunCause::kPrefetch) {
    return false;
  }
  return event.kind == RunEventKind::kGather ||
         (event.kind == RunEventKind::kTransfer && event.to == Tier::kDevice &&
          event.state == StateKind::kParam);
}

// A copy whose end is not known yet.
struct Open {
  Residency copy;
  bool gathered = false;
};

// Steps after which others are not in the record, though later ones are: up to
// where what happened in a step is known.
class KnownTimes {
 public:
  explicit KnownTimes(std::span<const RunEvent> events) {
    for (const RunEvent& event : events) {
      if (event.kind != RunEventKind::kStep) continue;
      ends_[event.rank][event.step] = event.end_ns;
    }
    for (auto& [rank, steps] : ends_) {
      int32_t next = 0;  // 0: there is none
      int64_t end_of_next = INT64_MAX;
      for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        if (next == 0 || next == step->first + 1) step->second = end_of_next;
        next = step->first;
        end_of_next = step->second;
      }
    }
  }

  int64_t EndOf(int32_t rank, int32_t step) const {
    const auto steps = ends_.find(rank);
    if (steps == ends_.end()) return INT64_MAX;
    const auto end = steps->second.find(step);
    return end == steps->second.end() ? INT64_MAX : end->second;
  }

 private:
  std::map<int32_t, std::map<int32_t, int64_t>> ends_;
};

}  // namespace

Result<StepRange> ParseStepRange(std::string_view text) {
  StepRange range;
  const size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view last =
      dash == std::string_view::npos ? first : text.substr(dash + 1);
  if (!ParseStep(first, &range.first) || !ParseStep(last, &range.last) ||
      range.last < range.first) {
    return InvalidArgument(fmt::format(
        "{} names no steps: write a number from 1 on, or two with a dash "
        "between them, the smaller first, as in 2-30",
        Quoted(text)));
  }
  return range;
}

std::vector<RunEvent> EventsOf(const RunRecord& record,
                               const StepRange& steps) {
  std::vector<RunEvent> events;
  for (const RunEvent& event : record.events) {
    if (steps.HoldsAll() || steps.Holds(event.step)) events.push_back(event);
  }
  StableSort(&events, [](const RunEvent& a, const RunEvent& b) {
    return a.begin_ns < b.begin_ns;
  });
  return events;
}

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

std::vector<Residency> FindResidencies(std::span<const RunEvent> events) {
  int64_t last_ns = INT64_MIN;
  std::vector<const RunEvent*> changes;
  for (const RunEvent& event : events) {
    last_ns = std::max(last_ns, event.end_ns);
    if (event.chunk >= 0 &&
        (Fetches(event) || event.kind == RunEventKind::kRelease)) {
      changes.push_back(&event);
    }
  }
  // A slot that is released and filled again at one time was released first.
  const auto key = [](const RunEvent* event) {
    return std::tuple(event->rank, event->chunk, event->begin_ns,
                      event->kind != RunEventKind::kRelease, event);
  };
  std::sort(
      changes.begin(), changes.end(),
      [&](const RunEvent* a, const RunEvent* b) { return key(a) < key(b); });

  const KnownTimes known(events);
  std::vector<Residency> found;
  std::optional<Open> open;
  const auto close = [&](int64_t at, RunCause why) {
    const int64_t end = known.EndOf(open->copy.rank, open->copy.step);
    open->copy.time.end = std::max(open->copy.time.begin, std::min(at, end));
    open->copy.released = at > end ? RunCause::kNone : why;
    found.push_back(open->copy);
    open.reset();
  };
  for (const RunEvent* event : changes) {
    if (open &&
        (open->copy.rank != event->rank || open->copy.chunk != event->chunk)) {
      close(last_ns, RunCause::kNone);
    }
    if (event->kind == RunEventKind::kRelease) {
      if (open) close(event->begin_ns, event->cause);
      continue;
    }
    const bool gathers = event->kind == RunEventKind::kGather;
    const auto index = static_cast<size_t>(event - events.data());
    // The shard comes first, maybe in pieces, and is then gathered around.
    if (open && !open->gathered) {
      open->gathered = gathers;
      size_t& made_by = open->copy.made_by;
      if (event->end_ns >= events[made_by].end_ns) made_by = index;
      continue;
    }
    if (open) close(event->begin_ns, RunCause::kNone);
    open = Open{{event->rank,
                 event->chunk,
                 event->step,
                 {event->begin_ns, event->end_ns},
                 event->cause,
                 RunCause::kNone,
                 index,
                 0},
                gathers};
  }
  if (open) close(last_ns, RunCause::kNone);
  // By rank and chunk.
  std::map<std::pair<int32_t, int32_t>, std::vector<int64_t>> uses;
  for (const RunEvent& event : events) {
    if (event.kind != RunEventKind::kUse) continue;
    uses[{event.rank, event.chunk}].push_back(event.begin_ns);
  }
  for (auto& [rank_and_chunk, begins] : uses) {
    std::sort(begins.begin(), begins.end());
  }
  for (Residency& copy : found) {
    const std::vector<int64_t>& begins = uses[{copy.rank, copy.chunk}];
    const auto first =
        std::lower_bound(begins.begin(), begins.end(), copy.time.begin);
    copy.first_use_ns =
        first == begins.end() ? copy.time.end : std::min(*first, copy.time.end);
  }
  return found;
}

std::optional<Interval> FindLaneTime(const RunRecord& record, int32_t rank,
                                     int32_t step) {
  std::optional<Interval> calls;
  int64_t end_before = INT64_MIN;
  int64_t end = INT64_MIN;
  for (const RunEvent& event : record.events) {
    if (event.rank != rank) continue;
    if (event.kind == RunEventKind::kStep && event.step == step) {
      calls = {event.begin_ns, event.end_ns};
    } else if (event.kind == RunEventKind::kStep && event.step == step - 1) {
      end_before = std::max(end_before, event.end_ns);
    } else if (event.kind == RunEventKind::kUse && event.moment >= 0) {
      if (event.step == step) end = std::max(end, event.end_ns);
      if (event.step == step - 1) {
        end_before = std::max(end_before, event.end_ns);
      }
    }
  }
  if (!calls) return std::nullopt;
  if (end_before != INT64_MIN) calls->begin = end_before;
  calls->end = std::max(calls->end, end);
  if (calls->begin >= calls->end) return std::nullopt;
  return calls;
}

std::map<size_t, Interval> FindUses(const Trace& trace,
                                    std::span<const RunEvent> events,
                                    int32_t rank, int32_t step) {
  std::map<int32_t, std::vector<Interval>> happened;  // by chunk
  for (const RunEvent& event : events) {
    // Those of evaluations have no moment.
    if (event.kind == RunEventKind::kUse && event.rank == rank &&
        event.step == step && event.moment >= 0) {
      happened[event.chunk].push_back({event.begin_ns, event.end_ns});
    }
  }
  std::map<int32_t, std::vector<size_t>> traced;
  for (size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].kind == AccessKind::kUse) {
      traced[trace[i].chunk.value()].push_back(i);
    }
  }
  std::map<size_t, Interval> uses;
  for (auto& [chunk, times] : happened) {
    const std::vector<size_t>& moments = traced[chunk];
    if (moments.size() != times.size()) continue;
    StableSort(&times, [](const Interval& a, const Interval& b) {
      return a.begin < b.begin;
    });
    for (size_t i = 0; i < times.size(); ++i) uses[moments[i]] = times[i];
  }
  return uses;
}

}  // namespace castor
