// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TEST_SEED_H_
#define CASTOR_TESTS_SUPPORT_TEST_SEED_H_

// The seed of a randomized test: `default_seed`, or CASTOR_TEST_SEED of the
// environment, printed either way so that a failure can be run again. A fixed
// default keeps the suite reproducible; set the variable to explore.

#include <cstdint>

namespace castor {

uint64_t TestSeed(uint64_t default_seed);

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TEST_SEED_H_
