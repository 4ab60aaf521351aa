// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_HOMES_HOME_FILLINGS_H_
#define CASTOR_PLACEMENT_HOMES_HOME_FILLINGS_H_

// Whether states fit at all, and homes that show it, for the .cc files of
// home_policy.h: how well homes are chosen is decided there. Pure, thread-safe.
// Part of the static policy (static_policy.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "chunk/base/units.h"
#include "placement/homes/home_policy.h"
#include "placement/run_event.h"

namespace castor::internal {

constexpr size_t Index(StateKind kind) { return static_cast<size_t>(kind); }

inline Bytes SumOf(const std::array<Bytes, kStateKinds>& bytes) {
  Bytes sum;
  for (Bytes b : bytes) sum += b;
  return sum;
}

// What of a chunk has its home on the device.
enum class OnDevice : uint8_t { kNothing, kParams, kEverything };

// Homes with the device filled as told and all else on NVMe.
std::vector<ChunkHomes> HomesOnDevice(const std::vector<OnDevice>& on_device);

// A filling that fits, with its homes; or the bytes missing.
struct Fitting {
  std::optional<std::vector<ChunkHomes>> homes;
  Bytes missing{std::numeric_limits<int64_t>::max()};
};

Fitting FindFitting(const HomeProblem& problem);

}  // namespace castor::internal

#endif  // CASTOR_PLACEMENT_HOMES_HOME_FILLINGS_H_
