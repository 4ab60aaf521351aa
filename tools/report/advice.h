// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_ADVICE_H_
#define CASTOR_TOOLS_REPORT_ADVICE_H_

// What holds a recorded run up, in a sentence, and what would make its steps
// shorter. Each proposal has been simulated. Pure functions, thread-safe.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "collectives/dry/simulation_result.h"
#include "placement/tier_model.h"
#include "tools/report/run_model.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {

// "nvme -> host holds the step up for 41 % of it; chunk 0, wte.weight, is
// waited for most". Of waits in step 1, which makes the plan, only where there
// is no other step.
std::string Headline(const RunStatistics& run);

struct Proposal {
  std::string what;  // "keep the parameters of chunk 0 in host memory"
  // Where it is written, and what: "command", "--host-budget 288MiB".
  std::vector<std::pair<std::string, std::string>> lines;
  Bytes more;                             // memory of a rank that it takes
  std::function<void(RunModel*)> change;  // the same of a model
  int64_t ns = 0;                         // of a step, simulated
  // What most explains it: "NVMe moves 481 MiB a step in place of 1.01 GiB".
  std::string why = {};
  bool same_bits = true;  // weights are those of the run
};

struct Advice {
  int64_t measured_ns = 0;                 // of the step that was simulated
  int64_t simulated_ns = 0;                // as it was; 0: it could not be
  std::optional<SimulatedStep> simulated;  // the same, whole
  std::optional<TierModel> machine;        // that the run was told of
  std::string why_none;  // nothing is proposed; empty where something is
  // Of those that change no bit the best that takes no more memory, and the
  // best that does, the better one first; then the best that changes bits.
  std::vector<Proposal> proposals;
};

// Tries budgets, homes of what is waited for, the policy, how far is fetched
// ahead, updates in the backward, and lighter moments.
Advice AdviceFor(const Result<RunModel>& model, const RunStatistics& run);

// "Keep the parameters ... on the host: a step takes 37 ms in place of 57 ms,
// simulated."
std::string ProposalText(const Advice& advice, const Proposal& proposal);

// What the simulation of the step as it was foretells of one rank beside what
// the record's steps have, an array of {"what", "unit", "foretold",
// "measured"}; empty where nothing was simulated.
JsonValue ForecastJson(const Advice& advice, const RunStatistics& run);

// An array of {"text", "lines"} as the page shows them.
JsonValue ProposalsJson(const Advice& advice);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_ADVICE_H_
