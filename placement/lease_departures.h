// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_LEASE_DEPARTURES_H_
#define CASTOR_PLACEMENT_LEASE_DEPARTURES_H_

// Whether what a step's leases left is still what its plan counts on
// (PlanProblem::lent_places), though its accesses are the planned ones: a
// longer sequence, say. Where they left fewer places, copies had to go, and the
// step is planned anew at once, for the fewest of both steps. Where they left
// more, it is planned anew too, but each time after twice as many steps that
// did, for the fewest of these: one long sequence costs two plans, and lengths
// that never settle end with a plan for all of them. A run and its simulation
// ask here, and so plan alike. Allocates in Adopt only. Thread-compatible.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/units.h"
#include "placement/step_trace.h"

namespace castor {

class LeaseDepartures {
 public:
  enum class Departure : uint8_t {
    kNone,
    kMore,   // for long enough, so that a plan may gain
    kFewer,  // the plan counted on what was not there
  };

  // Of an arena in places of so many bytes, as PlacesLeft.
  LeaseDepartures(Bytes arena, Bytes place) : arena_(arena), place_(place) {}

  // The plan counts on `lent` places by moment, of which this rank's leases
  // leave `own`. With `accesses_departed` it is of other accesses than the one
  // before. Empty: it counts on none. REQUIRES: else place > 0, and both are as
  // long.
  void Adopt(std::span<const int64_t> lent, std::vector<int64_t> own,
             bool accesses_departed);

  // A step followed the plan, with these leases by rising moments.
  Departure After(std::span<const LeaseChange> leases);

  // What the next plan may count on of this rank: as adopted, until a step
  // departs. Empty where the last plan counts on none.
  const std::vector<int64_t>& own() const { return own_; }

 private:
  static constexpr int kMostPatience = 64;

  Bytes arena_;
  Bytes place_;
  std::vector<int64_t> lent_;  // by moment; empty: nothing to depart from
  std::vector<int64_t> own_;
  std::vector<int64_t> left_;   // by the step looked at last
  std::vector<int64_t> least_;  // by the steps that left more, each of them
  int patience_ = 1;
  int steps_with_more_ = 0;
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_LEASE_DEPARTURES_H_
