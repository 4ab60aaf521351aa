// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_MEMORY_PROMISE_H_
#define CASTOR_OFFLOAD_MEMORY_MEMORY_PROMISE_H_

// Memory that a slab is about to touch. Ranks that are threads make their slabs
// at the same time. Each would find the same bytes available and take them, and
// the kernel would end the process.
//
// Thread-safe: promises of all threads of the process are counted together.

#include <optional>

#include "chunk/base/units.h"
#include "offload/host/available_memory.h"
#include "offload/host/slab_system.h"

namespace castor::internal {

class MemoryPromise {
 public:
  MemoryPromise() = default;
  // The memory is touched, or will not be.
  ~MemoryPromise();
  MemoryPromise(const MemoryPromise&) = delete;
  MemoryPromise& operator=(const MemoryPromise&) = delete;

  // Whether `size` bytes are available beside all promises; `returned` as in
  // SlabComing. Where promises of others decide, blocks until these are kept,
  // since touched memory is no longer available and would be counted twice.
  // `available`: what the system said last; nothing where the system says
  // nothing, and then the answer is yes. Once for an object.
  bool Make(Bytes size, Bytes returned, const SlabSystem& system,
            std::optional<AvailableMemory>* available);

 private:
  Bytes size_;
};

}  // namespace castor::internal

#endif  // CASTOR_OFFLOAD_MEMORY_MEMORY_PROMISE_H_
