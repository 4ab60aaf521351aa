// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TIMELINE_MEETINGS_H_
#define CASTOR_PLACEMENT_TIMELINE_MEETINGS_H_

// When equal ranks meet for collectives, in the order in which they make them.
// All ranks come at the same time but for one thing. Where a collective takes
// no time, the rank that comes last finds the collective over at once, and what
// this rank has queued elsewhere for that time follows. For other ranks that
// work goes before. So the first and the last rank may differ by one wait on a
// link. Part of the event loop (event_loop.h).

#include <cstdint>
#include <functional>
#include <vector>

#include "chunk/base/status.h"

namespace castor::internal {

struct Meetings {
  bool comes_last = false;  // this rank
  // When the other of the two ranks comes, where that is later.
  std::vector<int64_t> other_ns;
  std::vector<int64_t> own_ns;  // filled: when this rank came
};

// Runs the ranks that come first and last by turns, until each of them finds
// the other where the other was taken to be. The last run is the first rank's.
// Causes come before what follows from them, so every round settles one meeting
// at least. Ends with the first failure. REQUIRES: the same meetings give the
// same run, which fills in `own_ns`.
Status SettleMeetings(const std::function<Status(Meetings*)>& run);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_TIMELINE_MEETINGS_H_
