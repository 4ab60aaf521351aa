// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_BUDGET_RAISE_H_
#define CASTOR_CHUNK_BASE_BUDGET_RAISE_H_

#include "chunk/base/units.h"

namespace castor {

// A change of budgets with which something fits that did not: all parts of one
// raise are made together. Value.
struct BudgetRaise {
  Bytes device;
  Bytes host;
  Bytes nvme;  // from nothing, where there is no NVMe tier

  friend bool operator==(const BudgetRaise&, const BudgetRaise&) = default;
};

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_BUDGET_RAISE_H_
