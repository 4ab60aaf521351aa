// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_UNITS_H_
#define CASTOR_CHUNK_BASE_UNITS_H_

// Bytes and Elements: counts that cannot be mixed by accident. Construction is
// explicit, arithmetic that makes sense is defined, the rest does not compile,
// and overflow is a broken invariant (untrusted sizes are checked where they
// are read). Values.

#include <compare>
#include <cstdint>
#include <ostream>

#include "chunk/base/check.h"

namespace castor {

template <typename Unit>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t count) : count_(count) {}

  constexpr int64_t count() const { return count_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;

  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    int64_t sum = 0;
    CASTOR_CHECK(!__builtin_add_overflow(a.count_, b.count_, &sum));
    return Quantity(sum);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    int64_t difference = 0;
    CASTOR_CHECK(!__builtin_sub_overflow(a.count_, b.count_, &difference));
    return Quantity(difference);
  }
  friend constexpr Quantity operator*(Quantity a, int64_t factor) {
    int64_t product = 0;
    CASTOR_CHECK(!__builtin_mul_overflow(a.count_, factor, &product));
    return Quantity(product);
  }
  friend constexpr Quantity operator*(int64_t factor, Quantity a) {
    return a * factor;
  }
  // Division by a number rounds toward zero; by a quantity, it counts.
  friend constexpr Quantity operator/(Quantity a, int64_t divisor) {
    return Quantity(a.count_ / divisor);
  }
  friend constexpr int64_t operator/(Quantity a, Quantity b) {
    return a.count_ / b.count_;
  }
  friend constexpr Quantity operator%(Quantity a, Quantity b) {
    return Quantity(a.count_ % b.count_);
  }
  constexpr Quantity& operator+=(Quantity other) {
    return *this = *this + other;
  }
  constexpr Quantity& operator-=(Quantity other) {
    return *this = *this - other;
  }

  friend std::ostream& operator<<(std::ostream& out, Quantity q) {
    return out << q.count_ << Unit::kSuffix;
  }

 private:
  int64_t count_ = 0;
};

struct BytesUnit {
  static constexpr const char* kSuffix = " B";
};
struct ElementsUnit {
  static constexpr const char* kSuffix = " elements";
};

using Bytes = Quantity<BytesUnit>;
using Elements = Quantity<ElementsUnit>;

constexpr Bytes KiB(int64_t n) { return Bytes(1024) * n; }
constexpr Bytes MiB(int64_t n) { return KiB(1024) * n; }
constexpr Bytes GiB(int64_t n) { return MiB(1024) * n; }

// REQUIRES: value >= 0, multiple > 0.
template <typename Unit>
constexpr Quantity<Unit> RoundUp(Quantity<Unit> value,
                                 Quantity<Unit> multiple) {
  const Quantity<Unit> rest = value % multiple;
  return rest.count() == 0 ? value : value + (multiple - rest);
}

template <typename Unit>
constexpr Quantity<Unit> RoundDown(Quantity<Unit> value,
                                   Quantity<Unit> multiple) {
  return value - value % multiple;
}

template <typename Unit>
constexpr int64_t CeilDiv(Quantity<Unit> value, Quantity<Unit> divisor) {
  return RoundUp(value, divisor) / divisor;
}

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_UNITS_H_
