// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/clock.h"

#include <chrono>
#include <cstddef>
#include <new>

namespace castor {

int64_t SteadyClock::NowNs() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const Clock* MachineClock() {
  // Never destroyed, nor allocated: as RealSlabSystem.
  alignas(SteadyClock) static std::byte storage[sizeof(SteadyClock)];
  static const SteadyClock* const clock = new (storage) SteadyClock();
  return clock;
}

}  // namespace castor
