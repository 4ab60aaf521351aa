// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_SUBJECT_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_SUBJECT_H_

// What `castor plan` reads before it plans anything: the model, and the files
// that its flags name. Whatever is planned of it, nothing is read twice. Value;
// reading it is for the owner thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/layout_file.h"
#include "placement/activation_model.h"
#include "placement/step_model.h"
#include "placement/tier_model.h"
#include "placement/trace_file.h"
#include "tools/commands/plan/plan_flags.h"
#include "tools/models/model_list.h"

namespace castor {

struct PlanSubject {
  ModelList model;
  TransformerShape shape;            // as far as anything tells it
  std::vector<ModelBlock> by_block;  // without activations
  std::vector<ModelBlock> by_module;
  std::optional<TierModel> machine;          // --machine
  std::optional<TraceFile> trace;            // --trace
  std::shared_ptr<const LayoutFile> layout;  // --layout
};

// How many parameters the model has, and their bytes.
struct PlanTotals {
  int64_t elements = 0;
  Bytes bytes;
};
PlanTotals TotalsOf(const PlanSubject& subject);

// InvalidArgument, Malformed: as the readers of those files say.
Result<PlanSubject> ReadPlanSubject(const PlanFlags& flags);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_SUBJECT_H_
