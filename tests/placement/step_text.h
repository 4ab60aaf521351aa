// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_PLACEMENT_STEP_TEXT_H_
#define CASTOR_TESTS_PLACEMENT_STEP_TEXT_H_

// A trace in few letters: "u0 e0 o1 c1" is a use of chunk 0, its end, chunk 1's
// gradient opened and closed. Pure function.

#include <cstddef>
#include <string>

#include "placement/trace.h"

namespace castor {

inline std::string TextOf(const Trace& accesses) {
  std::string text;
  for (const Access& access : accesses) {
    text += text.empty() ? "" : " ";
    text += "ueoc"[static_cast<size_t>(access.kind)];
    text += std::to_string(access.chunk.value());
  }
  return text;
}

}  // namespace castor

#endif  // CASTOR_TESTS_PLACEMENT_STEP_TEXT_H_
