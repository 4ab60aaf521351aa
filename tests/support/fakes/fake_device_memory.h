// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_FAKE_DEVICE_MEMORY_H_
#define CASTOR_TESTS_SUPPORT_FAKES_FAKE_DEVICE_MEMORY_H_

// A GPU's memory as the host sees it: addresses, and no access. The pages are
// mapped twice. The addresses that are handed out have no rights, so who reads
// or writes there on the host ends the process with SIGSEGV. Streams of the
// fake go through Reach. Thread-compatible, but Reach is for any thread.

#include <cstddef>
#include <cstdint>
#include <map>

#include "offload/memory/range_allocator.h"

namespace castor {

class FakeDeviceMemory {
 public:
  // Pieces of `bytes` in all; pages come when they are touched.
  explicit FakeDeviceMemory(int64_t bytes);
  // What is still taken goes.
  ~FakeDeviceMemory();
  FakeDeviceMemory(const FakeDeviceMemory&) = delete;
  FakeDeviceMemory& operator=(const FakeDeviceMemory&) = delete;

  // Aligned to 256 bytes and dirty, as cudaMalloc's are; null where there is
  // no room.
  void* Take(int64_t size);
  // False where no piece begins there.
  bool Give(void* data);

  bool Owns(const void* data) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return address >= begin_ && address < begin_ + static_cast<size_t>(mapped_);
  }
  // Where the device's work finds what the host has at `data`: elsewhere for
  // memory of the device, there for any other.
  template <typename T>
  T* Reach(T* data) const {
    if (!Owns(data)) return data;
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(data) - begin_ +
                                behind_);
  }

  int64_t taken() const { return taken_; }
  int64_t pieces() const { return static_cast<int64_t>(pieces_.size()); }

 private:
  const int64_t bytes_;
  const int64_t mapped_;  // more, so that gaps between pieces do not matter
  int file_ = -1;
  uintptr_t begin_ = 0;   // of what is handed out
  uintptr_t behind_ = 0;  // of the same pages
  RangeAllocator ranges_;
  std::map<void*, int64_t> pieces_;  // sizes
  int64_t taken_ = 0;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_FAKE_DEVICE_MEMORY_H_
