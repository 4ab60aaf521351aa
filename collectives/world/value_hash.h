// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_WORLD_VALUE_HASH_H_
#define CASTOR_COLLECTIVES_WORLD_VALUE_HASH_H_

// Part of the digest of layouts (layout_digest.h).
//
// One number of many values, which ranks compare over a wire: the XXH3 of each
// value, seeded with that of the values before it. No file holds one. A value;
// allocates nothing.

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace castor::internal {

class ValueHash {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Add(T value) { Mix(&value, sizeof(value)); }
  void Add(std::string_view text) {
    Add(text.size());
    Mix(text.data(), text.size());
  }
  uint64_t value() const { return value_; }
  // What an all-reduce of int64 compares: the value and its negative both fit.
  int64_t signed_value() const { return static_cast<int64_t>(value_ >> 2); }

 private:
  void Mix(const void* data, size_t size) {
    value_ = XXH3_64bits_withSeed(data, size, value_);
  }

  uint64_t value_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_WORLD_VALUE_HASH_H_
