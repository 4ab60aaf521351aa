// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SIMULATE_PLOT_AXIS_H_
#define CASTOR_TOOLS_COMMANDS_SIMULATE_PLOT_AXIS_H_

// The axes of a plot: in which unit, and with which ticks. Pure functions,
// thread-safe.

#include <cstdint>
#include <string_view>

#include "chunk/base/units.h"

namespace castor {

// From `first` to `last`, both in nanoseconds or bytes, shown in a unit.
struct Axis {
  double first = 0;
  double last = 1;
  double unit = 1;
  std::string_view unit_name;

  // Between ticks, about six of which there are: 1, 2, 2.5 or 5 times a power
  // of ten of the unit.
  double step() const;
};

// From zero to a tick above what is longest, in s, ms, us or ns.
Axis TimeAxis(int64_t longest_ns);
// From `first` to `last`, in the largest binary unit that `last` has. REQUIRES:
// first < last.
Axis SizeAxis(Bytes first, Bytes last);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SIMULATE_PLOT_AXIS_H_
