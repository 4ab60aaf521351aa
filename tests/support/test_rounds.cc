// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/test_rounds.h"

#include <cstdlib>

#include "chunk/base/check.h"

namespace castor {
namespace {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define CASTOR_TEST_DEFAULT_ONE_IN 8
#endif
#endif
#ifndef CASTOR_TEST_DEFAULT_ONE_IN
#define CASTOR_TEST_DEFAULT_ONE_IN 1
#endif

int OneIn() {
  static const int one_in = [] {
    const char* const text = std::getenv("CASTOR_TEST_ONE_IN");
    if (text == nullptr) return CASTOR_TEST_DEFAULT_ONE_IN;
    const int value = std::atoi(text);
    CASTOR_CHECK(value > 0);
    return value;
  }();
  return one_in;
}

}  // namespace

int TestRounds(int plain) { return (plain + OneIn() - 1) / OneIn(); }

// A prime, which divides no number of a setting's values.
int TestStride() {
  constexpr int kPrimes[] = {2, 3, 5, 7, 11, 13};
  if (OneIn() == 1) return 1;
  for (const int prime : kPrimes) {
    if (prime > OneIn()) return prime;
  }
  return 17;
}

}  // namespace castor
