// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_RAISES_TEXT_H_
#define CASTOR_CHUNK_TEXT_RAISES_TEXT_H_

// How a refusal names the raises of budgets that would do. Pure functions,
// thread-safe.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/budget_raise.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"

namespace castor {

// "raise the device budget by 94.32 MiB, or raise both, the device budget by 4
// MiB and the host budget by 4 MiB, or give an NVMe directory with 98.57 MiB".
// Sizes are rounded up (FormatBytesUp). Empty for no raises.
std::string RaisesText(std::span<const BudgetRaise> raises,
                       bool has_nvme = true);

// The raise of one tier's budget alone.
BudgetRaise RaiseOf(Tier tier, Bytes by);

// Infeasible, "WHY; RAISES; OTHERWISE" with what is not empty, and the raises
// as numbers (Status::raises).
Status DoesNotFit(std::string_view why, std::vector<BudgetRaise> raises,
                  std::string_view otherwise, bool has_nvme = true);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_RAISES_TEXT_H_
