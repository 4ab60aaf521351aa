// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/residency.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "chunk/base/tier.h"

namespace castor {

namespace {

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

}  // namespace

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

  std::vector<Residency> found;
  std::optional<Open> open;
  const auto close = [&](int64_t at, RunCause why) {
    open->copy.time.end = at;
    open->copy.released = why;
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
    // The shard comes first, maybe in pieces, and is then gathered around.
    if (open && !open->gathered) {
      open->gathered = gathers;
      continue;
    }
    if (open) close(event->begin_ns, RunCause::kNone);
    open = Open{{event->rank,
                 event->chunk,
                 event->step,
                 {event->begin_ns, event->end_ns},
                 event->cause,
                 RunCause::kNone},
                gathers};
  }
  if (open) close(last_ns, RunCause::kNone);
  return found;
}

}  // namespace castor
