// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_BUDGET_RAISES_H_
#define CASTOR_COLLECTIVES_MEMORY_BUDGET_RAISES_H_

// By how much budgets that do not suffice fall short. Value.

#include <optional>
#include <span>
#include <vector>

#include "chunk/base/budget_raise.h"
#include "chunk/base/units.h"

namespace castor {

// The smallest raise of each budget that makes it fit alone; empty where none
// does.
struct BudgetRaises {
  // Of two budgets together.
  struct Both {
    Bytes device;
    Bytes host;

    Bytes total() const { return device + host; }
  };

  std::optional<Bytes> device;
  std::optional<Bytes> host;
  std::optional<Bytes> nvme;  // from nothing, where there is no NVMe tier
  // Where it is much less than each of the two alone.
  std::optional<Both> both;

  // As a refusal offers them, each enough by itself.
  std::vector<BudgetRaise> List() const;
};

// Where none of several layouts fits these budgets, the largest chunks first,
// what to offer: each raise is that of the largest chunks with which a budget
// is to be at most a sixteenth more than at least. Of raises of two budgets it
// is the least.
BudgetRaises NearestRaises(std::span<const BudgetRaises> raises, Bytes device,
                           Bytes host, std::optional<Bytes> nvme);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_MEMORY_BUDGET_RAISES_H_
