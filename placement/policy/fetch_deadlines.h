// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_FETCH_DEADLINES_H_
#define CASTOR_PLACEMENT_POLICY_FETCH_DEADLINES_H_

// When fetches begin that are to be there in time, for the policies' .cc files.
// The time of a fetch and of a step's compute are those that somebody measured
// or declared; nothing here looks at a clock. Pure functions, thread-safe.
//
// The model: fetches pass the legs of their way (FetchLegs) in the order of
// use, one at a time on each leg, and an access is served when the moment
// before it has computed and its fetch, if it has one, is over. Served so, the
// earliest schedule begins each fetch as soon as its slot is idle, and
// therefore serves every access as early as any schedule does. Its times are
// the deadlines: a fetch has to be over when the earliest schedule serves its
// use, and off each leg when the next fetch has to be on it,
//
//   last[j][leg] = min(last[j][leg + 1], last[j + 1][leg]) - lead * ns[j][leg],
//
// where what follows the last leg is the use. It begins at the last moment that
// comes no later than last[j][0], or as soon as it may. With a lead of 1 there
// always is such a moment, and:
//
// - Every access is served when the earliest schedule serves it. A step stalls
//   as long, access by access, and no schedule with any depth stalls less. That
//   is so with a longer lead, too.
// - Of all schedules that serve every access so, each fetch begins last: at no
//   moment are more fetches under way than in any of these.
// - On a way of one leg a schedule that stalls as little in all serves every
//   access so. There, no smaller number under way stalls as little.
//
// What a policy decides afterwards is not in it: that shards are kept
// (shard_copies.h), so that some gathers are sent from them and pass the last
// leg only. They are dated as whole fetches. So these and what shares their
// legs before them begin early rather than late; but where links hold the step
// up, uses after them are dated later than they come, and what is fetched for
// those may begin too late: the points above hold of plans that keep no shards.
//
// Where links hold the step up, deadlines follow what is late, so that nothing
// is begun early for a use that will wait anyway. A lead of more than 1 is time
// for what the model does not know: that links carry gradients as well, and
// that a slot is idle only once its gradient has gone. Part of what the
// policies share (slot_replay.h).

#include <cstdint>
#include <span>
#include <vector>

#include "placement/plan.h"

namespace castor::internal {

struct DatedFetch {
  int64_t use = 0;  // moment that needs it
  // The access after which it may begin; -1: when the step does; its use: only
  // on demand. It does not fall from fetch to fetch.
  int64_t earliest = -1;
  FetchLegs ns{};
};

// By fetch, the access after which to begin, -1: with the step; its use: on
// demand, just before that access. For the first access it is with the step,
// where that may be. None falls below the one before. REQUIRES: fetches in the
// order of use, one for each; compute times by moment, none negative; lead
// >= 1.
std::vector<int64_t> LatestBegins(std::span<const DatedFetch> fetches,
                                  std::span<const int64_t> compute_ns,
                                  int64_t lead);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_POLICY_FETCH_DEADLINES_H_
