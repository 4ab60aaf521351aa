// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_PLAN_READER_H_
#define CASTOR_TOOLS_MODELS_FILES_PLAN_READER_H_

// A plan from a file (collectives/answers/plan_file.h), with the layout and the
// machine that it names, for every program that takes one. Pure function of the
// files, thread-safe.

#include <string>

#include "chunk/base/status.h"
#include "collectives/answers/plan_file.h"

namespace castor {

// With the engine's layout and machine where the plan names files of them,
// which are looked for from its folder on. "-" is the standard input.
// InvalidArgument where nothing is at `path` or there, Malformed where it is
// none; each names its path.
Result<PlanFile> ReadPlanFile(const std::string& path);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_PLAN_READER_H_
