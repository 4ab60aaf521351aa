// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/text/raises_text.h"

#include <fmt/format.h>

#include <utility>

#include "chunk/text/units_text.h"

namespace castor {
namespace {

std::string OneRaise(const BudgetRaise& raise, bool has_nvme) {
  if (!has_nvme && raise.device == Bytes(0) && raise.host == Bytes(0)) {
    return fmt::format("give an NVMe directory with {}",
                       FormatBytesUp(raise.nvme));
  }
  std::vector<std::string> parts;
  const auto part = [&parts](std::string_view what, Bytes by) {
    if (by > Bytes(0)) {
      parts.push_back(fmt::format("{} by {}", what, FormatBytesUp(by)));
    }
  };
  part("the device budget", raise.device);
  part("the host budget", raise.host);
  part("the NVMe size", raise.nvme);
  if (parts.empty()) return "";
  std::string text = parts.size() == 1   ? "raise "
                     : parts.size() == 2 ? "raise both, "
                                         : "raise all three, ";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace

std::string RaisesText(std::span<const BudgetRaise> raises, bool has_nvme) {
  std::string text;
  for (const BudgetRaise& raise : raises) {
    const std::string one = OneRaise(raise, has_nvme);
    if (!text.empty() && !one.empty()) text += ", or ";
    text += one;
  }
  return text;
}

BudgetRaise RaiseOf(Tier tier, Bytes by) {
  BudgetRaise raise;
  switch (tier) {
    case Tier::kDevice:
      raise.device = by;
      break;
    case Tier::kHost:
      raise.host = by;
      break;
    case Tier::kNvme:
      raise.nvme = by;
      break;
  }
  return raise;
}

Status DoesNotFit(std::string_view why, std::vector<BudgetRaise> raises,
                  std::string_view otherwise, bool has_nvme) {
  std::string text(why);
  for (const std::string& part :
       {RaisesText(raises, has_nvme), std::string(otherwise)}) {
    if (part.empty()) continue;
    text += "; ";
    text += part;
  }
  return Infeasible(std::move(text)).WithRaises(std::move(raises));
}

}  // namespace castor
