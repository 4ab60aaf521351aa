// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_TABLES_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_TABLES_H_

// The tables of a plan's page, and its words for seconds. Pure functions,
// thread-safe.

#include <span>
#include <string>

#include "tools/cli/text_table.h"
#include "tools/commands/plan/plan_compare.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_variants.h"

namespace castor {

// "1.23 s". REQUIRES: seconds >= 0.
std::string SecondsShown(double seconds);

// Classes of bytes by tier, totals, budgets and peaks. REQUIRES: it fits.
std::string ByteTableText(const PlanOutcome& outcome, Emphasis emphasis);

// What every link and the optimizer do in a step. REQUIRES: it fits.
std::string StepTableText(const PlanOutcome& outcome, Emphasis emphasis);

// Variants, a line each, after the outcome that they are compared with.
// REQUIRES: all of them fit.
std::string VariantTableText(const PlanOutcome& outcome,
                             std::span<const PlanVariant> variants,
                             Emphasis emphasis);

// What the run was told otherwise than the plan; empty where nothing was.
std::string OtherSettingsText(const PlanComparison& comparison);

std::string ComparisonText(const PlanComparison& comparison, Emphasis emphasis);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_TABLES_H_
