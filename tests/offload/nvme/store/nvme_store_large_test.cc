// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// One transfer of more than 2 GiB, which no system call moves at once, in
// memory of more than 1 GiB, which no registered buffer holds.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/nvme/file_system_facts.h"
#include "offload/nvme/store/nvme_store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace castor {
namespace {

constexpr Bytes kSize = GiB(2) + KiB(8);

class Mapping {
 public:
  explicit Mapping(Bytes size) : size_(static_cast<size_t>(size.count())) {
    data_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Mapping() { ::munmap(data_, size_); }
  std::span<std::byte> span() const {
    return {static_cast<std::byte*>(data_), size_};
  }

 private:
  void* data_;
  size_t size_;
};

// A word every 64 KiB that tells where it is, and the last one.
std::vector<size_t> Marks() {
  std::vector<size_t> marks;
  for (size_t at = 0; at < static_cast<size_t>(kSize.count()); at += 65536) {
    marks.push_back(at);
  }
  marks.push_back(static_cast<size_t>(kSize.count()) - 8);
  return marks;
}

TEST(NvmeStoreLargeTest, OneTransferOfMoreThan2GiB) {
  TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto facts, DescribeFileSystem(dir.path()));
  if (facts.free < kSize + GiB(1)) GTEST_SKIP() << "too little disk";
  ASSERT_OK_AND_ASSIGN(auto store,
                       NvmeStore::Create({.drives = {{dir.path(), kSize}}}));
  const Mapping memory(kSize);
  store->RegisterMemory(memory.span());
  for (const uint64_t at : Marks()) {
    std::memcpy(&memory.span()[at], &at, sizeof(at));
  }
  ASSERT_THAT(store->Write(Bytes(0), memory.span(), Event(), "w").Wait(),
              IsOk());
  std::memset(memory.span().data(), 0, memory.span().size());
  ASSERT_THAT(store->Read(Bytes(0), memory.span(), Event(), "r").Wait(),
              IsOk());
  for (const uint64_t at : Marks()) {
    uint64_t found = 1;
    std::memcpy(&found, &memory.span()[at], sizeof(found));
    ASSERT_EQ(found, at);
  }
  EXPECT_EQ(store->stats().bytes_written, kSize);
}

}  // namespace
}  // namespace castor
