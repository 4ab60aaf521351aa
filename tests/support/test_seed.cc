// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/test_seed.h"

#include <cstdlib>
#include <iostream>

namespace castor {

uint64_t TestSeed(uint64_t default_seed) {
  const char* set = std::getenv("CASTOR_TEST_SEED");
  const uint64_t seed =
      set == nullptr ? default_seed : std::strtoull(set, nullptr, 0);
  std::cout << "seed " << seed << " (run again with CASTOR_TEST_SEED=" << seed
            << ")" << std::endl;
  return seed;
}

}  // namespace castor
