// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REPORT_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REPORT_H_

// A plan and its surroundings: what the page for people (plan_text.h), the
// tab-separated lines (plan_plain.h) and the JSON document (plan_json.h) show,
// each a pure function of it, so that the same report gives the same bytes.
// Values; thread-safe.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/byte_classes.h"
#include "tools/commands/plan/plan_compare.h"
#include "tools/commands/plan/plan_explain.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_subject.h"
#include "tools/commands/plan/plan_variants.h"

namespace castor {

// What is known of how good the plan's fetches are, in the unit of its costs:
// links that a chunk crosses on its way into a gathered slot.
struct PlanBound {
  double lower_bound = 0;  // no plan costs less
  bool optimal = false;    // the plan is proved best
};

struct PlanReport {
  PlanFlags flags;
  PlanSubject subject;
  PlanOutcome outcome;
  std::optional<PlanBound> bound;         // where it fits
  std::vector<PlanVariant> changes;       // where it does not fit
  std::vector<PlanVariant> alternatives;  // where it does
  std::vector<PlanVariant> more;
  std::optional<PlanComparison> comparison;
  std::vector<ExplainedChunk> explained;  // where it fits, if asked for
  std::string output;  // the file that the plan was written to, if any
};

// "parameters", "gradients", ...: for people.
std::string_view ByteClassTitle(ByteClass kind);

// The largest chunk that is not oversize.
Bytes LargestChunk(const ChunkLayout& layout);

// Those with a parameter that is larger than chunks are.
struct OversizeChunks {
  int64_t count = 0;
  Bytes largest;
};
OversizeChunks OversizeOf(const ChunkLayout& layout);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_REPORT_H_
