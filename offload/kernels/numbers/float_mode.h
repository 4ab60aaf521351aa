// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_NUMBERS_FLOAT_MODE_H_
#define CASTOR_OFFLOAD_KERNELS_NUMBERS_FLOAT_MODE_H_

// DefaultFloatMode puts the calling thread into the default floating-point
// mode (round to nearest even, denormals kept) while it lives, and the caller's
// own mode and exception flags back afterwards: trainers flush denormals, and
// a kernel's bits must not depend on who calls it. The compiler does not know
// that arithmetic depends on the mode, so the arithmetic belongs in memory or
// behind a call, not on the values of the same function. Owner thread only.

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace castor {

class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  // Without the x87 unit, which no kernel uses: a twentieth of the time.
  DefaultFloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~DefaultFloatMode() { _mm_setcsr(saved_); }
#else
  DefaultFloatMode() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatMode() { std::fesetenv(&saved_); }
#endif

  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1F80;  // as at a thread's start
  const unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_NUMBERS_FLOAT_MODE_H_
