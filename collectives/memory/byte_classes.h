// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_BYTE_CLASSES_H_
#define CASTOR_COLLECTIVES_MEMORY_BYTE_CLASSES_H_

// Part of the memory plan (memory_plan.h).
//
// What a rank's memory is for, tier by tier, to the byte: everything that Seal
// takes, in rows that add up to it. Values and pure functions, thread-safe.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/memory/memory_plan.h"
#include "placement/state_kind.h"

namespace castor {

enum class ByteClass : uint8_t {
  kParams,
  kGrads,
  kMasters,  // and the optimizer's states behind them, as StateKind
  kRounding = kStateKinds,  // of these up to whole slots: 512 bytes, 4 KiB off
                            // the device
  kGathered,                // slots that the step holds at once
  kPrefetch,                // slots for what is fetched ahead
  kKept,                    // slots for copies that are worth keeping
  kSpare,                   // places for guesses of updates
  kStaging,                 // pinned, for bytes on their way
  kNorm,                    // sums of squares
  kCommunicator,            // its buffers
  kLeases,                  // the trainer's, borrowed
};
inline constexpr int kByteClasses = kStateKinds + 9;

// "param", ..., "gathered", "prefetch", ...: for programs.
std::string_view ByteClassName(ByteClass kind, const StateNames& states);

struct ByteTable {
  // By ByteClass, then by TierIndex.
  std::array<std::array<Bytes, 3>, kByteClasses> bytes;
  StateNames states = {};

  // Without states that the optimizer does not keep, in order.
  std::vector<ByteClass> classes() const;
  std::string_view name(ByteClass kind) const {
    return ByteClassName(kind, states);
  }

  Bytes& at(ByteClass kind, Tier tier) {
    return bytes[static_cast<size_t>(kind)][TierIndex(tier)];
  }
  Bytes at(ByteClass kind, Tier tier) const {
    return bytes[static_cast<size_t>(kind)][TierIndex(tier)];
  }
  Bytes total(Tier tier) const;
  Bytes total(ByteClass kind) const;
};

ByteTable ByteTableOf(const MemoryPlan& memory, Bytes communicator_buffers);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_MEMORY_BYTE_CLASSES_H_
