// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_TIER_STATISTICS_H_
#define CASTOR_TOOLS_REPORT_TIER_STATISTICS_H_

// How full each tier was over the course of a step. Pure function, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/base/tier.h"
#include "offload/record/record_reader.h"
#include "tools/report/step_windows.h"

namespace castor {

struct TierStatistics {
  Tier tier = Tier::kDevice;
  int64_t peak_bytes = 0;  // of the rank that used most
  int32_t peak_rank = -1;
  int32_t peak_step = 0;
  int64_t budget_bytes = 0;  // of that rank; 0: none given
  // Mean bytes of a rank in each part of a step, over ranks and steps.
  std::vector<double> over_step;
};

// The tiers that the record speaks of. Peaks are those of `steps`, or of the
// whole record, what comes before the first step included, if that is all of
// them. `over_step` has `parts` parts.
std::vector<TierStatistics> ComputeTierStatistics(
    const RunRecord& record, std::span<const StepWindow> windows,
    const StepRange& steps, int parts);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_TIER_STATISTICS_H_
