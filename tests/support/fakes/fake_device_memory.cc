// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/fakes/fake_device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "chunk/base/check.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

constexpr int64_t kPage = 4096;

uintptr_t Map(int file, int64_t size, int rights) {
  void* const at = mmap(nullptr, static_cast<size_t>(size), rights,
                        MAP_SHARED | MAP_NORESERVE, file, 0);
  CASTOR_CHECK(at != MAP_FAILED);
  return reinterpret_cast<uintptr_t>(at);
}

}  // namespace

FakeDeviceMemory::FakeDeviceMemory(int64_t bytes)
    : bytes_(bytes),
      mapped_((2 * bytes + kPage - 1) / kPage * kPage),
      ranges_(Bytes(0), Bytes(mapped_), Bytes(kPage)) {
  file_ = memfd_create("fake device", MFD_CLOEXEC);
  CASTOR_CHECK(file_ >= 0);
  CASTOR_CHECK(ftruncate(file_, mapped_) == 0);
  begin_ = Map(file_, mapped_, PROT_NONE);
  behind_ = Map(file_, mapped_, PROT_READ | PROT_WRITE);
}

FakeDeviceMemory::~FakeDeviceMemory() {
  for (const uintptr_t at : {begin_, behind_}) {
    munmap(reinterpret_cast<void*>(at), static_cast<size_t>(mapped_));
  }
  close(file_);
}

void* FakeDeviceMemory::Take(int64_t size) {
  CASTOR_CHECK_GT(size, 0);
  if (taken_ + size > bytes_) return nullptr;
  const std::optional<Bytes> offset = ranges_.Take(Bytes(size), Bytes(kPage));
  if (!offset) return nullptr;
  void* const data =
      reinterpret_cast<void*>(begin_ + static_cast<uintptr_t>(offset->count()));
  std::memset(Reach(data), 0xA5, static_cast<size_t>(size));
  pieces_[data] = size;
  taken_ += size;
  return data;
}

bool FakeDeviceMemory::Give(void* data) {
  const auto found = pieces_.find(data);
  if (found == pieces_.end()) return false;
  const Bytes offset(
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) - begin_));
  const Bytes size(found->second);
  // The pages go back to the system.
  CASTOR_CHECK(fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         offset.count(),
                         RoundUp(size, Bytes(kPage)).count()) == 0);
  ranges_.Give(offset, size);
  taken_ -= size.count();
  pieces_.erase(found);
  return true;
}

}  // namespace castor
