// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_NCCL_REGISTERED_HEAP_H_
#define CASTOR_TESTS_COLLECTIVES_NCCL_REGISTERED_HEAP_H_

// Has `new` of the whole program take its memory from one range, which can be
// registered with a device: then vectors of a test that was written for any
// backend are what a GPU reads and writes too. For programs that link it, and
// no others. Thread-safe.

#include <cstdint>
#include <utility>

namespace castor {

// The range, page-aligned; null where the system has none.
std::pair<void*, int64_t> RegisteredHeap();

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_NCCL_REGISTERED_HEAP_H_
