// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/chunk_bounds.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/layout/chunk_packer.h"

namespace castor {
namespace {

constexpr Bytes kMostChunk = MiB(640);
// A model of larger chunks than the first has at least so many of them: a chunk
// is fetched and reduced while others compute.
constexpr Bytes kFewMost = MiB(10);
constexpr int64_t kLeastChunks = 16;
// The search begins no higher than this where nobody says.
constexpr Bytes kMostLeast = MiB(32);
// The smallest chunks that are tried: a model has no more than 64 of them, but
// where these would be larger than the first of these sizes.
constexpr Bytes kLargestFloor = MiB(1);
constexpr Bytes kSmallestFloor = KiB(4);
constexpr int64_t kChunksPerModel = 64;
constexpr int64_t kBudgetsPerChunk = 8;
constexpr int64_t kLeastPart = 2;

Bytes PowerBelow(Bytes bytes) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(bytes.count(), 1));
  return Bytes(static_cast<int64_t>(std::bit_floor(count)));
}

Bytes WithQuarter(Bytes power) { return power + power / 4; }

}  // namespace

std::vector<ChunkBounds> ChunkBoundsFor(Bytes model,
                                        std::optional<Bytes> device_budget,
                                        int world,
                                        std::optional<Bytes> said_least,
                                        std::optional<Bytes> said_most) {
  const auto least = [&](Bytes most) {
    return said_least.value_or(std::min(kMostLeast, most / kLeastPart));
  };
  if (said_most) return {{least(*said_most), *said_most}};
  const Bytes shared = BytesOf(ChunkQuantum(world), DType::kF32);
  const Bytes floor = std::max(std::clamp(PowerBelow(model / kChunksPerModel),
                                          kSmallestFloor, kLargestFloor),
                               PowerBelow(shared) * 2);
  const Bytes largest =
      std::max(std::min({kMostChunk, std::max(kFewMost, model / kLeastChunks),
                         WithQuarter(PowerBelow(model) * 2)}),
               WithQuarter(floor));
  std::vector<ChunkBounds> bounds;
  const auto add = [&](Bytes most) {
    if (device_budget && most > WithQuarter(floor) &&
        most > WithQuarter(PowerBelow(*device_budget / kBudgetsPerChunk))) {
      return;
    }
    if (!bounds.empty() && least(most) > most) return;
    bounds.push_back({least(most), std::max(most, least(most))});
  };
  Bytes power = PowerBelow(largest * 4 / 5);
  if (largest > WithQuarter(power)) add(largest);
  for (; power >= floor; power = power / 2) add(WithQuarter(power));
  return bounds;
}

Bytes ModelBytes(std::span<const ParamSpec> params) {
  Bytes model;
  for (const ParamSpec& spec : params) {
    const Result<Elements> count = CountElements(spec.shape, spec.dtype);
    if (count.ok()) model += BytesOf(*count, spec.dtype);
  }
  return model;
}

}  // namespace castor
