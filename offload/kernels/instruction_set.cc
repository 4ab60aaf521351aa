// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/instruction_set.h"

#include <cstdint>

#include "hwy/targets.h"

namespace castor {

InstructionSet KernelInstructionSet() {
  // The lower the bit, the better the target.
  const int64_t have = hwy::SupportedTargets() & HWY_TARGETS;
  const int64_t best = have & -have;
#if HWY_ARCH_X86
  const bool wide = best != 0 && best <= HWY_AVX2;
#else
  const bool wide = best != 0 && best < HWY_EMU128;
#endif
  return {.name = hwy::TargetName(best), .wide = wide};
}

}  // namespace castor
