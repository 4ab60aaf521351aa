// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_
#define CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_

// How much a test tries. The plain build draws for wrong answers,
// as often as asked for. Sanitizers look at the code that a draw runs through,
// take five to ten times as long for it, and see all of it sooner: a quarter.

namespace castor {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CASTOR_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CASTOR_TEST_SANITIZED 1
#endif
#endif

// `plain`, or at least a quarter of it where a sanitizer watches.
constexpr int TestRounds(int plain) {
#ifdef CASTOR_TEST_SANITIZED
  return (plain + 3) / 4;
#else
  return plain;
#endif
}

// For tests that go through every combination of a few settings: they run each
// TestStride()-th, which where a sanitizer watches is one in five, so that all
// values of settings that have two, three or four are met.
constexpr int TestStride() {
#ifdef CASTOR_TEST_SANITIZED
  return 5;
#else
  return 1;
#endif
}

#undef CASTOR_TEST_SANITIZED

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_
