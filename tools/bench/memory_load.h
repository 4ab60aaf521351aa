// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_BENCH_MEMORY_LOAD_H_
#define CASTOR_TOOLS_BENCH_MEMORY_LOAD_H_

// What trains beside the drive, for benchmarks: a thread that copies between
// buffers larger than the caches, and one that makes AdamW steps.

#include <atomic>

namespace castor {

struct MemoryLoadResult {
  double copied_bytes_per_second = 0;    // read and written counted once
  double updated_params_per_second = 0;  // of AdamW in fp32
};

// Runs until `stop` is set or `seconds` have passed. Blocks.
MemoryLoadResult RunMemoryLoad(bool copies, bool adam, double seconds,
                               const std::atomic<bool>& stop);

}  // namespace castor

#endif  // CASTOR_TOOLS_BENCH_MEMORY_LOAD_H_
