// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/budget_raises.h"

namespace castor {

std::vector<BudgetRaise> BudgetRaises::List() const {
  std::vector<BudgetRaise> list;
  if (device) list.push_back({.device = *device, .host = {}, .nvme = {}});
  if (host) list.push_back({.device = {}, .host = *host, .nvme = {}});
  if (nvme) list.push_back({.device = {}, .host = {}, .nvme = *nvme});
  if (both) {
    list.push_back({.device = both->device, .host = both->host, .nvme = {}});
  }
  return list;
}

BudgetRaises NearestRaises(std::span<const BudgetRaises> raises, Bytes device,
                           Bytes host, std::optional<Bytes> nvme) {
  const auto nearest = [&](std::optional<Bytes> BudgetRaises::*kind,
                           Bytes now) -> std::optional<Bytes> {
    std::optional<Bytes> least;
    for (const BudgetRaises& each : raises) {
      const std::optional<Bytes>& by = each.*kind;
      if (by && (!least || *by < *least)) least = by;
    }
    for (const BudgetRaises& each : raises) {
      const std::optional<Bytes>& by = each.*kind;
      if (by && *by - *least <= (now + *least) / 16) return by;
    }
    return std::nullopt;
  };
  BudgetRaises offers = {nearest(&BudgetRaises::device, device),
                         nearest(&BudgetRaises::host, host),
                         nearest(&BudgetRaises::nvme, nvme.value_or(Bytes(0))),
                         std::nullopt};
  for (const BudgetRaises& each : raises) {
    if (each.both &&
        (!offers.both || each.both->total() < offers.both->total())) {
      offers.both = each.both;
    }
  }
  return offers;
}

}  // namespace castor
