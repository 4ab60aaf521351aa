// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_FLOAT_MODE_H_
#define CASTOR_OFFLOAD_KERNELS_FLOAT_MODE_H_

// DefaultFloatMode puts the calling thread into the default floating-point
// mode (round to nearest even, denormals kept) while it lives, and the caller's
// own mode and exception flags back afterwards: trainers flush denormals, and
// a kernel's bits must not depend on who calls it. The compiler does not know
// that arithmetic depends on the mode, so the arithmetic belongs in memory or
// behind a call, not on the values of the same function. Owner thread only.

#include <cfenv>

#include "chunk/base/check.h"

namespace castor {

class DefaultFloatMode {
 public:
  DefaultFloatMode() {
    CASTOR_CHECK_EQ(std::fegetenv(&saved_), 0);
    CASTOR_CHECK_EQ(std::fesetenv(FE_DFL_ENV), 0);
  }
  ~DefaultFloatMode() { std::fesetenv(&saved_); }

  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_FLOAT_MODE_H_
