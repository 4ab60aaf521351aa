// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_RUN_SUMMARY_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_RUN_SUMMARY_H_

// What a person sees of a training run: a line while it trains, and a summary
// at its end, as text or as one JSON document. Pure functions, thread-safe.

#include <string>

#include "chunk/text/json_value.h"
#include "tools/examples/gpt/trainer.h"

namespace castor::gpt {

// "step 12/30  loss 2.3451  ...", of one line without its end. Tiers without a
// budget are left out.
std::string ProgressLine(const TrainOptions& options, const StepReport& report);

// REQUIRES: outcome.ranks is not empty. Several lines, each with its end. In
// the document `losses` and `grad_norms`
// are of the last thousand steps at most, and everything else of all.
std::string SummaryText(const TrainOptions& options,
                        const TrainOutcome& outcome);
JsonValue SummaryJson(const TrainOptions& options, const TrainOutcome& outcome);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_RUN_SUMMARY_H_
