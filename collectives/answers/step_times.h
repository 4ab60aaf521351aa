// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_STEP_TIMES_H_
#define CASTOR_COLLECTIVES_ANSWERS_STEP_TIMES_H_

// How long links, drives, the optimizer and the trainer work for a step, each
// alone, and between which bounds the step lies. Part of what is foretold
// (foretell.h). Pure function, thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "placement/step_traffic.h"
#include "placement/tier_model.h"

namespace castor {

// What works for a step; each at the same time as the others, or not.
struct ResourceTime {
  std::string_view name;   // "host_to_device", "optimizer", "compute", ...
  std::string_view title;  // for people
  LinkTraffic moved;       // or worked through; nothing by what computes
  std::optional<double> seconds;  // empty: nobody said how fast it is
};

struct StepTimes {
  std::vector<ResourceTime> resources;  // those that a step uses, in one order
  // A simulated step that follows others like it lies between these. All at
  // the same time: the slowest, in host memory that they share. One after the
  // other: their sum, each as slow as others could make it. Empty where one
  // that is used is unknown.
  std::optional<double> least_seconds;
  std::optional<double> most_seconds;
  std::vector<std::string> unknown;  // the names of those
};

// What ranks of one machine share: drives, memory and the optimizer's cores.
struct StepRanks {
  int world = 1;
  int per_host = 1;
};

// `compute_ns`: the trainer's. Without a machine all is unknown.
StepTimes TimesOf(const StepTraffic& traffic, const StepRanks& ranks,
                  int64_t compute_ns, const std::optional<TierModel>& machine);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_STEP_TIMES_H_
