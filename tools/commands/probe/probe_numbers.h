// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PROBE_PROBE_NUMBERS_H_
#define CASTOR_TOOLS_COMMANDS_PROBE_PROBE_NUMBERS_H_

// From what was timed to the numbers that a probe's report says of it, and the
// machine's model with it. Owner thread of the report only.

#include <optional>
#include <string>
#include <vector>

#include "placement/tier_model.h"
#include "tools/commands/probe/probe_report.h"
#include "tools/measure/memory_timing.h"
#include "tools/measure/samples.h"

namespace castor {

// `name`: as the machine file has it; `words`: as people say it. A link that
// has no line is said to be missing, and the report to have failed.
void AddLink(ProbeReport& report, const std::string& name,
             const std::string& words, const std::vector<TimedSize>& points,
             std::optional<LinkModel> TierModel::*entry);
// Of a collective among `ranks`.
void AddRing(ProbeReport& report, int ranks, const std::string& name,
             const std::string& words, const std::vector<TimedSize>& points,
             std::optional<RingModel> TierModel::*entry);
void AddRate(ProbeReport& report, const std::string& name,
             const std::string& words, const TimedRate& rate,
             std::optional<RateModel> TierModel::*entry);

// What makes numbers of the report mean less than they look: buffers that fit
// the caches, and noise. A sentence each.
std::vector<std::string> NotesOn(const ProbeReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PROBE_PROBE_NUMBERS_H_
