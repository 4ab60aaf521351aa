// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_PLACEMENT_POLICY_NAIVE_REPLAY_H_
#define CASTOR_TESTS_PLACEMENT_POLICY_NAIVE_REPLAY_H_

// Whether a plan holds, written a second time from what placement/plan.h says
// of plans: sets of what is there, counted anew whenever anything is. Slow; for
// tests that compare it with the validator. Pure.
//
// REQUIRES: a trace with accesses, and a problem that is one for it.

#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

bool NaivelyHolds(const Trace& trace, const PlanProblem& problem,
                  const Plan& plan);

}  // namespace castor

#endif  // CASTOR_TESTS_PLACEMENT_POLICY_NAIVE_REPLAY_H_
