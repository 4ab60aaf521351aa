// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_LANE_SUM_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_LANE_SUM_H_

// A sum whose order is fixed and which a compiler may still vectorise: term i
// goes to lane i mod 16, and the lanes are folded in halves. The same bits on
// every instruction set. Pure function, thread-safe.

#include <cstdint>

namespace castor::gpt {

// The sum of term(0) ... term(count - 1).
template <typename T, class Term>
T LaneSum(int64_t count, const Term& term) {
  constexpr int kLanes = 16;
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  for (; i < count; ++i) lanes[i % kLanes] += term(i);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_LANE_SUM_H_
