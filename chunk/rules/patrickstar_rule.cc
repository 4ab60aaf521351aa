// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/patrickstar_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "chunk/base/check.h"

namespace castor {
namespace {

// Sizes and numbers of the parameters that must share a chunk.
struct Module {
  Elements size;
  int64_t params = 0;
};

std::vector<Module> ModulesOf(std::span<const RuleParam> params) {
  std::vector<Module> modules;
  for (size_t i = 0; i < params.size(); ++i) {
    if (i == 0 || params[i].module != params[i - 1].module) {
      modules.emplace_back();
    }
    modules.back().size += params[i].size;
    ++modules.back().params;
  }
  return modules;
}

// REQUIRES: no module larger than chunk_size.
RulePacking Pack(std::span<const Module> modules, Elements chunk_size) {
  RulePacking packing;
  RuleChunk open;
  for (const Module& module : modules) {
    if (module.size == Elements(0)) continue;
    if (module.size > open.size - open.used) {
      if (open.params > 0) packing.Append(open);
      open = RuleChunk{};
      open.size = chunk_size;
    }
    open.used += module.size;
    open.params += module.params;
  }
  if (open.params > 0) packing.Append(open);
  return packing;
}

// Parameter and gradient in 2 bytes, master and two moments in 4 each.
Bytes ModelBytes(Elements allocated) { return Bytes(14) * allocated.count(); }

}  // namespace

RuleResult ApplyPatrickStarRule(std::span<const RuleParam> params,
                                const PatrickStarRuleOptions& options) {
  CASTOR_CHECK_GT(options.world, 0);
  CASTOR_CHECK_GT(options.step, Elements(0));
  CASTOR_CHECK_GT(options.smallest, Elements(0));
  RuleResult result;
  result.rule = CompatibilityRule::kPatrickStar;
  const std::vector<Module> modules = ModulesOf(params);
  Elements largest_module;
  for (const Module& module : modules) {
    largest_module = std::max(largest_module, module.size);
  }
  const double device =
      static_cast<double>(options.device_memory.count()) * options.device_ratio;
  const double machine =
      device +
      static_cast<double>(options.host_memory.count()) * options.host_ratio;

  std::optional<Bytes> least_bytes;  // of the sizes that hold every module
  for (Elements size = options.largest; size >= options.smallest;
       size -= options.step) {
    if (largest_module > size) continue;
    // Elements against bytes, as the script has it.
    if (device < 2 * static_cast<double>(size.count())) continue;
    RulePacking packing = Pack(modules, size);
    const Bytes bytes = ModelBytes(packing.allocated);
    if (!least_bytes || bytes < *least_bytes) least_bytes = bytes;
    if (machine < static_cast<double>(bytes.count())) continue;
    const double claimed = packing.waste_fraction();
    if (result.chunk_size && claimed >= result.claimed_fraction) continue;
    result.chunk_size = size;
    result.claimed_fraction = claimed;
    result.claimed_waste = packing.waste();
    result.packing = std::move(packing);
  }
  if (!result.chunk_size) {
    result.failure =
        least_bytes
            ? fmt::format(
                  "at every size it tries, 14 bytes for each allocated element "
                  "are {} bytes or more, and the machine it assumes has {:.0f}",
                  least_bytes->count(), machine)
            : fmt::format(
                  "its largest size, {} elements, does not hold the largest "
                  "module, of {}",
                  options.largest.count(), largest_module.count());
    return result;
  }
  RuleChunk empty;
  empty.size = *result.chunk_size;
  while (static_cast<int64_t>(result.packing.chunks.size()) % options.world !=
         0) {
    result.packing.Append(empty);
  }
  return result;
}

}  // namespace castor
