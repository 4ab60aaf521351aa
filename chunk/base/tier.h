// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_TIER_H_
#define CASTOR_CHUNK_BASE_TIER_H_

// The three places a chunk's bytes can live, fastest first.

#include <array>
#include <cstdint>
#include <string_view>

namespace castor {

enum class Tier : uint8_t { kDevice, kHost, kNvme };

inline constexpr std::array<Tier, 3> kAllTiers = {Tier::kDevice, Tier::kHost,
                                                  Tier::kNvme};

constexpr std::string_view TierName(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kNvme:
      return "nvme";
  }
  return "unknown";
}

constexpr size_t TierIndex(Tier tier) { return static_cast<size_t>(tier); }

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_TIER_H_
