// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_BUDGET_TEXT_H_
#define CASTOR_CHUNK_TEXT_BUDGET_TEXT_H_

// Budgets as messages say them: one that nobody gave, or that is more than any
// machine has, is unlimited and has no number. Pure functions, thread-safe.

#include <string>

#include "chunk/base/units.h"

namespace castor {

inline constexpr Bytes kMoreThanAnyMachine{int64_t{1} << 49};

constexpr bool IsUnlimited(Bytes budget) {
  return budget >= kMoreThanAnyMachine;
}

// "1 MiB", "unlimited bytes".
std::string BudgetText(Bytes budget);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_BUDGET_TEXT_H_
