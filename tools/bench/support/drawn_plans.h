// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_BENCH_SUPPORT_DRAWN_PLANS_H_
#define CASTOR_TOOLS_BENCH_SUPPORT_DRAWN_PLANS_H_

// Small GPTs and ways to train them, drawn at random, to hold plans against the
// runs that follow them. Thread-safe but for the generator and the folder.

#include <optional>
#include <random>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_request.h"
#include "tools/examples/gpt/model/gpt_params.h"

namespace castor {

struct DrawnPlan {
  gpt::GptConfig model;
  DType dtype = DType::kF32;
  PlanFlags flags;  // of everything but a device budget
};

// Any combination of ranks, stages, groups, chunk sizes, types, gradient modes,
// accumulation, policies, budgets of the host and the drive, limits and rules;
// some have no meaning together.
DrawnPlan DrawPlan(std::mt19937_64& random);

// What castor plan reads of the trainer's list, written to `folder`.
Result<PlanSubject> SubjectOf(const DrawnPlan& plan, const std::string& folder);
// The same without what the list says of the step.
PlanSubject WithoutStep(PlanSubject subject);

// The least device budget that fits, to the byte; empty where 64 MiB do not.
// InvalidArgument where the flags have no meaning together.
Result<std::optional<Bytes>> LeastDeviceBudget(const PlanSubject& subject,
                                               const PlanFlags& flags);

}  // namespace castor

#endif  // CASTOR_TOOLS_BENCH_SUPPORT_DRAWN_PLANS_H_
