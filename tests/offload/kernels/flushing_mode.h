// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_KERNELS_FLUSHING_MODE_H_
#define CASTOR_TESTS_OFFLOAD_KERNELS_FLUSHING_MODE_H_

// The worst mode a trainer may call from: denormals flushed to zero, operands
// and results, and rounding upward. Lasts as long as the object. Owner thread
// only.

#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace castor {

class FlushingMode {
 public:
#if defined(__x86_64__)
  static constexpr bool kSupported = true;
#else
  static constexpr bool kSupported = false;
#endif

  FlushingMode() {
    std::fegetenv(&saved_);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  }
  ~FlushingMode() { std::fesetenv(&saved_); }

  FlushingMode(const FlushingMode&) = delete;
  FlushingMode& operator=(const FlushingMode&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_KERNELS_FLUSHING_MODE_H_
