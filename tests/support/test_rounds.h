// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_
#define CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_

// How much a test tries. The plain build draws for wrong answers, as often as
// asked for. Sanitizers look at the code that a draw runs through, take five to
// ten times as long, and see all of the code sooner: an eighth of the rounds.
//
// CASTOR_TEST_ONE_IN of the environment, 1 or more, says another share than an
// eighth, or a share for the plain build. A program that runs a second time in
// another setting takes a part that way.

namespace castor {

// `plain`, or the share of `plain` that is tried here; at least 1 where `plain`
// is.
int TestRounds(int plain);

// Tests that go through every combination of a few settings run each
// TestStride()-th. The stride is a prime, 11 where an eighth is tried, so every
// value of a setting comes up.
int TestStride();

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TEST_ROUNDS_H_
