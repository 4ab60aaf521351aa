// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TIMELINE_WIRE_CLOCK_H_
#define CASTOR_PLACEMENT_TIMELINE_WIRE_CLOCK_H_

// What wires ask of a counted clock: the time, and timers that are put off as
// often as a transfer becomes faster or slower. Owner thread only. Part of the
// wires (wires.h).

#include <cstdint>
#include <limits>

#include "chunk/base/unique_function.h"

namespace castor::internal {

class WireClock {
 public:
  using WireTask = UniqueFunction<void()>;

  virtual ~WireClock() = default;
  virtual int64_t NowNs() const = 0;
  // A place among the timers that are due at one time: lower ones go first.
  virtual uint64_t TakePlace() = 0;
  // Not at all, and without moving the clock, where *version is another by
  // then. REQUIRES: the time is not over; `version` outlives the timer, and
  // null stands for one that is never another.
  virtual void AtPlace(int64_t due_ns, uint64_t place, const uint64_t* version,
                       WireTask task) = 0;

  // The clock never ends: what would come later comes at its last moment.
  int64_t FromNow(int64_t ns) const {
    constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
    const int64_t now_ns = NowNs();
    return now_ns > kLast - ns ? kLast : now_ns + ns;
  }
};

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_TIMELINE_WIRE_CLOCK_H_
