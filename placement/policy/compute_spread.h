// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_POLICY_COMPUTE_SPREAD_H_
#define CASTOR_PLACEMENT_POLICY_COMPUTE_SPREAD_H_

// A step's compute time where only the whole of it is known: shared out over
// the moments of the step. A run, its simulation and its plan share it out
// here, and so count on the same times. Pure functions, thread-safe. Part of
// the forecast of fetches (fetch_forecast.h).

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/units.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

// Each use of a chunk, and each gradient, computes for as long as its bytes: by
// moment. `bytes` by ChunkId.
std::vector<double> ComputeWeights(const Trace& trace,
                                   std::span<const Bytes> bytes);

// `total_ns` in proportion to the weights, rounded so that the whole comes
// out; empty where they are all 0. REQUIRES: neither is negative.
std::vector<int64_t> ShareOut(std::span<const double> weights,
                              int64_t total_ns);

// What a plan of the trace counts on, by moment: the problem's time of a step,
// shared out; empty where that is unknown.
std::vector<int64_t> PlannedComputeNs(const Trace& trace,
                                      const PlanProblem& problem);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_POLICY_COMPUTE_SPREAD_H_
