// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_TEXT_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_TEXT_H_

// A plan's report as a page for people. Pure function, thread-safe.

#include <string>

#include "tools/cli/text_table.h"
#include "tools/commands/plan/plan_report.h"

namespace castor {

std::string PlanText(const PlanReport& report, Emphasis emphasis);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_TEXT_H_
