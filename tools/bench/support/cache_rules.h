// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_BENCH_SUPPORT_CACHE_RULES_H_
#define CASTOR_TOOLS_BENCH_SUPPORT_CACHE_RULES_H_

// What others' rules would fetch for a trace, for benchmarks and tests: nothing
// but copies, slots and costs, on demand. Pure functions, thread-safe.

#include <cstdint>

#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {

enum class CacheRule : uint8_t {
  // The copy that was used longest ago goes.
  kLeastRecentlyUsed,
  // Belady's: the copy whose next use is furthest away, in this step or the
  // next, whatever it costs to fetch.
  kFurthestUse,
  // The auto placement of ColossalAI's Gemini: furthest next use in the list
  // that its warm-up step recorded, which ends with the step, so that all
  // copies not used again in it are alike and the first of them goes; and every
  // step begins without copies.
  kGemini,
};

// What fetches cost per step when every step is like the one before; the mean
// of several where a rule does not settle. REQUIRES: the trace is one of a step
// and fits.
double CacheRuleCost(const Trace& trace, const PlanProblem& problem,
                     CacheRule rule);

}  // namespace castor

#endif  // CASTOR_TOOLS_BENCH_SUPPORT_CACHE_RULES_H_
