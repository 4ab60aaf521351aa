// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_IDS_H_
#define CASTOR_CHUNK_BASE_IDS_H_

// Numbers that name things, each with a type of its own so that a chunk is
// never taken for a parameter. Ids count from zero in the order in which their
// things were made. Values.

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace castor {

template <typename Tag>
class Id {
 public:
  constexpr Id() = default;  // names nothing
  constexpr explicit Id(int32_t value) : value_(value) {}

  constexpr int32_t value() const { return value_; }
  constexpr bool valid() const { return value_ >= 0; }
  // For indexing a vector. REQUIRES: valid().
  constexpr size_t index() const { return static_cast<size_t>(value_); }

  friend constexpr auto operator<=>(Id, Id) = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) {
    return out << id.value_;
  }

 private:
  int32_t value_ = -1;
};

using ParamId = Id<struct ParamTag>;
using ChunkId = Id<struct ChunkTag>;
// A position in the recorded step.
using Moment = Id<struct MomentTag>;

}  // namespace castor

template <typename Tag>
struct std::hash<castor::Id<Tag>> {
  size_t operator()(castor::Id<Tag> id) const noexcept {
    return std::hash<int32_t>()(id.value());
  }
};

#endif  // CASTOR_CHUNK_BASE_IDS_H_
