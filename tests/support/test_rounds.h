// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_
#define CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_

// How much a test tries. The plain build draws for wrong answers, as often as
// asked for. Sanitizers look at the code that a draw runs through, take five to
// ten times as long for it, and see all of it sooner: an eighth.

namespace castor {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define CASTOR_TEST_ONE_IN 8
#define CASTOR_TEST_STRIDE 11
#endif
#endif
#ifndef CASTOR_TEST_ONE_IN
#define CASTOR_TEST_ONE_IN 1
#define CASTOR_TEST_STRIDE 1
#endif

// `plain`, or at least that part of it where a sanitizer watches.
constexpr int TestRounds(int plain) {
  return (plain + CASTOR_TEST_ONE_IN - 1) / CASTOR_TEST_ONE_IN;
}

// For tests that go through every combination of a few settings: they run each
// TestStride()-th, which where a sanitizer watches is one in eleven, so that
// all values of settings that have few are met.
constexpr int TestStride() { return CASTOR_TEST_STRIDE; }

#undef CASTOR_TEST_ONE_IN
#undef CASTOR_TEST_STRIDE

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_
