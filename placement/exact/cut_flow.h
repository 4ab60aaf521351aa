// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_CUT_FLOW_H_
#define CASTOR_PLACEMENT_EXACT_CUT_FLOW_H_

// The one use of LEMON's network simplex, for the .cc files of
// interval_flow.h. Slots flow through the moments: between two neighbouring
// cuts is a node, each cut is an arc for slots that keep nothing, and each
// interval is an arc of one slot past the cuts it lies across, whose cost is
// what it gains, negated. A flow that is as large at each cut as the cut's
// capacity is a choice of intervals that fits, and the least costly one gains
// most; its potentials are the prices. Pure, thread-safe. Part of the interval
// flow (interval_flow.h).

#include <cstdint>
#include <vector>

#include "placement/exact/tight_cuts.h"

namespace castor::internal {

struct CutFlow {
  std::vector<bool> kept;      // by interval of the cuts
  std::vector<int64_t> price;  // by cut; not negative
  // Slots that every cut has more than its capacity; negative: fewer.
  int64_t extra = 0;
};

// The choice that gains most; extra is 0. `gains`, by interval of the cuts: not
// negative, below kMaxTotalGain in all. REQUIRES: no interval wraps.
CutFlow SolveLine(const TightCuts& cuts, const std::vector<int64_t>& gains);

// The same round and round, where flow that goes round has no beginning whose
// size could be told: so all cuts may have the same number of slots more or
// fewer, each at `loop_price`. What is found gains most for that many. REQUIRES
// as above, but for wrapping; 0 < loop_price <= 2 kMaxTotalGain.
CutFlow SolveLoop(const TightCuts& cuts, const std::vector<int64_t>& gains,
                  int64_t loop_price);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_EXACT_CUT_FLOW_H_
