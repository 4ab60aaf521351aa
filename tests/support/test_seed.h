// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_TEST_SEED_H_
#define CASTOR_TESTS_SUPPORT_TEST_SEED_H_

// The seed of a randomized test: `default_seed`, or CASTOR_TEST_SEED of the
// environment, printed either way so that a failure can be run again. A fixed
// default keeps the suite reproducible; set the variable to explore.

#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace castor {

inline uint64_t TestSeed(uint64_t default_seed) {
  const char* set = std::getenv("CASTOR_TEST_SEED");
  const uint64_t seed =
      set == nullptr ? default_seed : std::strtoull(set, nullptr, 0);
  std::cout << "seed " << seed << " (run again with CASTOR_TEST_SEED=" << seed
            << ")" << std::endl;
  return seed;
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_TEST_SEED_H_
