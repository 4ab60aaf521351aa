// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_CLOCK_H_
#define CASTOR_CHUNK_BASE_CLOCK_H_

// Time is injected, so that tests turn it by hand and the simulator runs on a
// clock of its own. Implementations are thread-safe.

#include <cstdint>

namespace castor {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary start; never goes back.
  virtual int64_t NowNs() const = 0;
};

// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  int64_t NowNs() const override;
};

// A SteadyClock that is there as long as the process is.
const Clock* MachineClock();

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_CLOCK_H_
