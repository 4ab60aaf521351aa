// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/cli/duration_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "chunk/base/check.h"

namespace castor {

std::string FormatDuration(int64_t ns) {
  CASTOR_CHECK_GE(ns, int64_t{0});
  struct Unit {
    double ns;
    std::string_view name;
  };
  static constexpr std::array<Unit, 3> kUnits = {
      {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}}};
  for (const Unit& unit : kUnits) {
    const double value = static_cast<double>(ns) / unit.ns;
    // Rounding must not leave 1000 of a unit where the next one begins.
    if (value < 0.9995) continue;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, digits, unit.name);
  }
  return fmt::format("{} ns", ns);
}

}  // namespace castor
