// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_JSON_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_JSON_H_

// A plan's report as one JSON document, for programs: castor.plan-report/1.
// Pure function, thread-safe.

#include "chunk/base/json_value.h"
#include "tools/commands/plan/plan_report.h"

namespace castor {

JsonValue PlanJson(const PlanReport& report);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_JSON_H_
