// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/residency.h"

#include <algorithm>
#include <tuple>

namespace castor {

std::vector<Residency> FindResidencies(std::span<const RunEvent> events) {
  int64_t last_ns = INT64_MIN;
  std::vector<const RunEvent*> changes;
  for (const RunEvent& event : events) {
    last_ns = std::max(last_ns, event.end_ns);
    if (event.chunk >= 0 && (event.kind == RunEventKind::kGather ||
                             event.kind == RunEventKind::kRelease)) {
      changes.push_back(&event);
    }
  }
  // A slot that is released and gathered again at one time was released first.
  std::sort(
      changes.begin(), changes.end(), [](const RunEvent* a, const RunEvent* b) {
        return std::tuple(a->rank, a->chunk, a->begin_ns,
                          a->kind == RunEventKind::kGather,
                          a) < std::tuple(b->rank, b->chunk, b->begin_ns,
                                          b->kind == RunEventKind::kGather, b);
      });
  std::vector<Residency> found;
  bool open = false;  // found.back() has no end yet
  for (const RunEvent* event : changes) {
    if (open && (found.back().rank != event->rank ||
                 found.back().chunk != event->chunk)) {
      found.back().time.end = last_ns;
      open = false;
    }
    if (open) found.back().time.end = event->begin_ns;
    if (event->kind == RunEventKind::kGather) {
      found.push_back({event->rank,
                       event->chunk,
                       {event->begin_ns, event->end_ns},
                       event->cause,
                       RunCause::kNone});
      open = true;
    } else if (open) {
      found.back().released = event->cause;
      open = false;
    }
  }
  if (open) found.back().time.end = last_ns;
  return found;
}

}  // namespace castor
