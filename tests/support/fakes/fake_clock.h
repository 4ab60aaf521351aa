// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_FAKE_CLOCK_H_
#define CASTOR_TESTS_SUPPORT_FAKES_FAKE_CLOCK_H_

// A clock that stands still until the test moves it. Thread-safe.

#include <atomic>
#include <cstdint>

#include "chunk/base/clock.h"

namespace castor {

class FakeClock final : public Clock {
 public:
  explicit FakeClock(int64_t now_ns = 0) : now_ns_(now_ns) {}

  int64_t NowNs() const override { return now_ns_; }
  // REQUIRES: ns >= 0.
  void AdvanceNs(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_FAKE_CLOCK_H_
