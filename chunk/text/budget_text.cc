// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/budget_text.h"

#include "chunk/text/units_text.h"

namespace castor {

std::string BudgetText(Bytes budget) {
  return IsUnlimited(budget) ? "unlimited bytes" : FormatBytes(budget);
}

}  // namespace castor
