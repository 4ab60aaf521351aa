// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/collectives/nccl/registered_heap.h"

#include <sys/mman.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

namespace castor {
namespace {

constexpr size_t kHeapBytes = size_t{256} << 20;
// Before each block: which list it goes back to. Keeps the alignment of new.
constexpr size_t kHeader = 16;
constexpr size_t kLists = 40;

// Blocks of powers of two from one mapping; nothing of it is given back. What
// does not fit any more comes from malloc, as what is of no list.
class Heap {
 public:
  void* Take(size_t size) {
    const auto list = static_cast<size_t>(std::bit_width(size + kHeader - 1));
    std::lock_guard lock(mutex_);
    if (list < kLists && free_[list] != nullptr) {
      Block* const block = free_[list];
      free_[list] = block->next;
      return Mark(block, list);
    }
    if (start_ == nullptr) Map();
    const size_t bytes = size_t{1} << list;
    if (start_ == MAP_FAILED || list >= kLists || used_ + bytes > kHeapBytes) {
      void* const block = std::malloc(size + kHeader);
      return block == nullptr ? nullptr : Mark(block, kLists);
    }
    void* const block = static_cast<std::byte*>(start_) + used_;
    used_ += bytes;
    return Mark(block, list);
  }

  void Give(void* data) {
    void* const block = static_cast<std::byte*>(data) - kHeader;
    const size_t list = *static_cast<size_t*>(block);
    if (list == kLists) return std::free(block);
    std::lock_guard lock(mutex_);
    auto* const freed = static_cast<Block*>(block);
    freed->next = free_[list];
    free_[list] = freed;
  }

  void* start() {
    std::lock_guard lock(mutex_);
    if (start_ == nullptr) Map();
    return start_ == MAP_FAILED ? nullptr : start_;
  }

 private:
  struct Block {
    Block* next;
  };

  static void* Mark(void* block, size_t list) {
    *static_cast<size_t*>(block) = list;
    return static_cast<std::byte*>(block) + kHeader;
  }
  void Map() {
    start_ = mmap(nullptr, kHeapBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }

  std::mutex mutex_;
  void* start_ = nullptr;
  size_t used_ = 0;
  std::array<Block*, kLists> free_ = {};
};

// Needed before any constructor has run, and after the last destructor.
constinit Heap heap;

}  // namespace

std::pair<void*, int64_t> RegisteredHeap() {
  return {heap.start(), static_cast<int64_t>(kHeapBytes)};
}

}  // namespace castor

void* operator new(size_t size) {
  void* const data = castor::heap.Take(size);
  if (data == nullptr) std::abort();
  return data;
}
void* operator new[](size_t size) { return operator new(size); }
void operator delete(void* data) noexcept {
  if (data != nullptr) castor::heap.Give(data);
}
void operator delete[](void* data) noexcept { operator delete(data); }
void operator delete(void* data, size_t) noexcept { operator delete(data); }
void operator delete[](void* data, size_t) noexcept { operator delete(data); }
