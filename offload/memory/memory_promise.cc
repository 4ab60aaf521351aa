// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/memory_promise.h"

#include <condition_variable>
#include <mutex>

#include "chunk/base/check.h"

namespace castor::internal {
namespace {

struct Promises {
  std::mutex mutex;
  std::condition_variable kept;
  Bytes bytes;  // guarded by mutex
};

Promises& All() {
  static Promises all;
  return all;
}

}  // namespace

MemoryPromise::~MemoryPromise() {
  if (size_ == Bytes(0)) return;
  Promises& all = All();
  {
    const std::lock_guard lock(all.mutex);
    all.bytes -= size_;
  }
  all.kept.notify_all();
}

bool MemoryPromise::Make(Bytes size, Bytes returned, const SlabSystem& system,
                         std::optional<AvailableMemory>* available) {
  CASTOR_CHECK_EQ(size_, Bytes(0));
  Promises& all = All();
  std::unique_lock lock(all.mutex);
  while (true) {
    *available = system.Available();
    if (!*available || size + all.bytes <= (*available)->bytes + returned) {
      break;
    }
    if (all.bytes == Bytes(0)) return false;
    const Bytes before = all.bytes;
    all.kept.wait(lock, [&] { return all.bytes != before; });
  }
  all.bytes += size;
  size_ = size;
  return true;
}

}  // namespace castor::internal
