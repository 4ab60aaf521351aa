// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_KERNELS_INSTRUCTION_SET_H_
#define CASTOR_OFFLOAD_KERNELS_INSTRUCTION_SET_H_

// Which instruction set the kernels of this folder run with on this processor:
// the best of those that this build contains, chosen at run time. The bits of
// their results do not depend on it, their speed does. Pure function,
// thread-safe.

#include <string>

namespace castor {

struct InstructionSet {
  std::string name;  // Highway's: "AVX2", "AVX3", "NEON", "SSE4"
  // Vectors as wide as the architecture's usual ones: AVX2 or better on x86-64,
  // anything but plain code elsewhere.
  bool wide = false;
};

InstructionSet KernelInstructionSet();

}  // namespace castor

#endif  // CASTOR_OFFLOAD_KERNELS_INSTRUCTION_SET_H_
