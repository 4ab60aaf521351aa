// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/plot_axis.h"

#include <algorithm>
#include <cmath>

#include "chunk/base/units_text.h"

namespace castor {
namespace {

constexpr int kTicks = 6;

// 1, 2, 2.5 or 5 times a power of ten, of which about kTicks cover `span`.
double NiceStep(double span) {
  const double rough = span / kTicks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (power * factor >= rough) return power * factor;
  }
  return power * 10;
}

}  // namespace

double Axis::step() const { return NiceStep((last - first) / unit) * unit; }

Axis TimeAxis(int64_t longest_ns) {
  Axis axis;
  axis.unit = 1;
  axis.unit_name = "ns";
  const struct {
    double ns;
    std::string_view name;
  } kUnits[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};
  for (const auto& unit : kUnits) {
    if (static_cast<double>(longest_ns) < unit.ns) continue;
    axis.unit = unit.ns;
    axis.unit_name = unit.name;
    break;
  }
  axis.last = std::max(static_cast<double>(longest_ns), 1.0) * 1.05;
  const double step = axis.step();
  axis.last = std::ceil(axis.last / step) * step;
  return axis;
}

Axis SizeAxis(Bytes first, Bytes last) {
  Axis axis;
  axis.unit_name = "B";
  axis.first = static_cast<double>(first.count());
  axis.last = static_cast<double>(last.count());
  for (const SizeUnit& unit : kBinarySizeUnits) {
    if (last.count() < unit.bytes) continue;
    axis.unit = static_cast<double>(unit.bytes);
    axis.unit_name = unit.name;
    break;
  }
  return axis;
}

}  // namespace castor
