// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RUN_TOTALS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RUN_TOTALS_H_

// Part of the summary (run_summary.h). A run's numbers over all its ranks, for
// the .cc files of run_summary.h. Pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>

#include "chunk/base/tier.h"
#include "collectives/zero_engine.h"
#include "offload/pinned_arena.h"
#include "offload/simulated_link.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

// Of one tier, the largest of all ranks; of everything else, the sum.
EngineStats Combined(std::span<const EngineStats> ranks);
// REQUIRES: there is one.
PinnedArenaStats Combined(std::span<const PinnedArenaStats> arenas);
RankLinks Combined(std::span<const RankLinks> ranks);

// 0 where no time passed.
double TokensPerSecond(int64_t tokens, double seconds);
double BusySeconds(const LinkUse& link);
double StalledSeconds(const EngineStats& all);
// The share of all ranks' time that they waited.
double StalledShare(const TrainOptions& options, const TrainOutcome& outcome,
                    const EngineStats& all);
// A drive given without a size holds whatever budgets do not.
bool HasLimit(const TrainOptions& options, Tier tier);

// A digest as it is printed.
std::string Hex(uint64_t digest);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RUN_TOTALS_H_
