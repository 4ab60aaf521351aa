// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_FETCH_FORECAST_H_
#define CASTOR_PLACEMENT_POLICY_FETCH_FORECAST_H_

// What a plan's fetches are worth in time, by the times that its problem has:
// each leg of their way takes them one after the other, and has nothing else to
// do (collectives/dry/dry_run.h knows what else there is). Pure
// function, thread-safe.

#include <cstdint>
#include <optional>

#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

struct FetchForecast {
  int64_t most_ahead = 0;  // begun and not yet used, at one time
  int64_t late = 0;        // not there when they are used
  int64_t stall_ns = 0;    // of the step, for these

  friend bool operator==(const FetchForecast&, const FetchForecast&) = default;
};

// Of a step when every one follows the plan; empty where the problem has not
// the times of every link and of the step. REQUIRES: ValidatePlan is ok.
std::optional<FetchForecast> ForeseeFetches(const Trace& trace,
                                            const PlanProblem& problem,
                                            const Plan& plan);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_POLICY_FETCH_FORECAST_H_
