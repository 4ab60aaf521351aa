// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_PLAN_READER_H_
#define CASTOR_TOOLS_MODELS_PLAN_READER_H_

// A plan from a file (collectives/plan_file.h), with the layout and the machine
// that it names, for every program that takes one. Pure function of the files,
// thread-safe.

#include <memory>
#include <optional>
#include <string>

#include "chunk/base/status.h"
#include "chunk/layout_file.h"
#include "collectives/plan_file.h"
#include "placement/tier_model.h"

namespace castor {

struct LoadedPlan {
  PlanFile plan;
  std::shared_ptr<const LayoutFile> layout;  // null where it names none
  std::optional<TierModel> machine;
};

// "-" is the standard input. Files that it names are looked for from its folder
// on. InvalidArgument where nothing is at `path` or there, Malformed
// where it is none; each names its path.
Result<LoadedPlan> ReadPlanFile(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_PLAN_READER_H_
