// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/strip.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace castor {

std::string DrawStrip(std::span<const double> shares, StripInk ink) {
  static constexpr std::array<std::string_view, 9> kAscii = {
      " ", ".", ":", "-", "=", "+", "*", "#", "@"};
  static constexpr std::array<std::string_view, 9> kBlocks = {
      " ",      "\u2581", "\u2582", "\u2583", "\u2584",
      "\u2585", "\u2586", "\u2587", "\u2588"};
  const auto& inks = ink == StripInk::kAscii ? kAscii : kBlocks;
  std::string strip;
  for (const double share : shares) {
    const auto level = static_cast<size_t>(
        std::clamp(share, 0.0, 1.0) * static_cast<double>(inks.size() - 1));
    strip += share <= 0 ? inks[0] : inks[std::min(level + 1, inks.size() - 1)];
  }
  return strip;
}

}  // namespace castor
