// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_ALIGNED_BYTES_H_
#define CASTOR_TESTS_SUPPORT_ALIGNED_BYTES_H_

// Memory for transfers: zeroed, 4 KiB aligned, or deliberately `misalignment`
// bytes past that. Owns it; move-only.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "chunk/base/check.h"
#include "chunk/base/units.h"

namespace castor {

class AlignedBytes {
 public:
  explicit AlignedBytes(Bytes size, size_t misalignment = 0)
      : size_(static_cast<size_t>(size.count())), start_(misalignment) {
    const size_t whole = (size_ + misalignment + 4096) / 4096 * 4096;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, whole)));
    CASTOR_CHECK(memory_ != nullptr);
    std::memset(memory_.get(), 0, whole);
  }

  std::byte* data() const { return memory_.get() + start_; }
  Bytes size() const { return Bytes(static_cast<int64_t>(size_)); }
  std::span<std::byte> span() const { return {data(), size_}; }
  std::span<std::byte> part(Bytes offset, Bytes size) const {
    return span().subspan(static_cast<size_t>(offset.count()),
                          static_cast<size_t>(size.count()));
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_;
  size_t start_;
};

// Bytes that depend on `seed` alone. Tests are not optimised and fill many MiB,
// so the generator is a short one: SplitMix64 (Steele, Lea, Flood 2014).
inline void FillRandom(std::span<std::byte> bytes, uint64_t seed) {
  uint64_t state = seed;
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = state += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    word ^= word >> 31;
    std::memcpy(&bytes[i], &word, std::min<size_t>(8, bytes.size() - i));
  }
}

// Unlike gmock's matchers, prints nothing of several MiB.
inline bool SameBytes(std::span<const std::byte> a,
                      std::span<const std::byte> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Whether all of them are `byte`: each then equals its neighbour. Tests are not
// optimised, so that a loop over many bytes would take its time.
inline bool OnlyBytes(std::span<const std::byte> bytes, std::byte byte) {
  return bytes.empty() ||
         (bytes[0] == byte &&
          SameBytes(bytes.subspan(1), bytes.first(bytes.size() - 1)));
}

inline void FillBytes(std::span<std::byte> bytes, std::byte byte) {
  if (!bytes.empty()) {
    std::memset(bytes.data(), static_cast<int>(byte), bytes.size());
  }
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_ALIGNED_BYTES_H_
