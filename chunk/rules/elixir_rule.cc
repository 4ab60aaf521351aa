// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/elixir_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/rules/grid_search.h"

namespace castor {
namespace {

struct Range {
  Elements first;
  Elements last;
  Elements step;
};

// Counted in bytes, then divided, as the original does. Empty where the list is
// so long that it leaves no size to try.
std::optional<Range> SearchRange(std::span<const Elements> sizes,
                                 int64_t element_bytes) {
  constexpr int64_t kLeastStep = 1024;
  constexpr int64_t kMaxLookedAt = int64_t{16} << 20;
  Bytes largest;
  for (const Elements size : sizes) {
    largest = std::max(largest, Bytes(element_bytes) * size.count());
  }
  Bytes least = MiB(32);
  while (least < largest) least = least * 2;
  const Bytes most = least * 3;
  // Forward and backward.
  const int64_t passes = 2 * static_cast<int64_t>(std::bit_ceil(sizes.size()));
  const int64_t tries = kMaxLookedAt / passes;
  if (tries == 0) return std::nullopt;
  const int64_t gap = (most - least).count();
  const int64_t step = tries > gap / kLeastStep ? kLeastStep : gap / tries;
  return Range{Elements(least.count() / element_bytes),
               Elements(most.count() / element_bytes),
               Elements(step / element_bytes)};
}

}  // namespace

RuleResult ApplyElixirRule(std::span<const RuleParam> params,
                           const ElixirRuleOptions& options) {
  CASTOR_CHECK_GT(options.world, 0);
  CASTOR_CHECK_GT(options.element_bytes, 0);
  CASTOR_CHECK_LE(options.element_bytes, 8);
  const Elements world(options.world);
  RuleResult result;
  result.rule = CompatibilityRule::kElixir;
  std::vector<Elements> once;
  Elements total;
  for (const RuleParam& param : params) {
    if (!param.trainable) {
      ++result.unpacked_params;
      result.unpacked += param.size;
    } else if (param.shared) {
      ++result.ignored_params;
      result.ignored += param.size;
      if (param.size == Elements(0)) continue;
      result.packing.Append(
          {RoundUp(param.size, world), param.size, 1, /*own=*/true});
    } else {
      once.push_back(param.size);
      total += param.size;
    }
  }
  if (result.ignored_params > 0) {
    result.ignored_why = "used under several names, in chunks of their own";
  }
  const auto fail = [&result](std::string why) {
    result.failure = std::move(why);
    result.packing = RulePacking{};
    return result;
  };
  if (total == Elements(0)) {
    return fail("no parameter is both trainable and used under one name only");
  }
  const std::optional<Range> range = SearchRange(once, options.element_bytes);
  if (!range) {
    return fail(fmt::format(
        "its bound on the work leaves no size to try for {} parameters",
        once.size()));
  }

  Elements unrounded = total;
  if (total > range->first) {
    const GridChoice choice = LeastWasteOnGrid(
        once, RoundUp(range->first, range->step), range->last, range->step);
    unrounded = choice.chunk_size;
    result.claimed_waste = choice.waste;
    result.claimed_fraction = static_cast<double>(choice.waste.count()) /
                              static_cast<double>(total.count());
  }
  result.chunk_size = RoundUp(unrounded, world);
  // Chunks are filled to the size that was found and made of the rounded one.
  RuleChunk open;
  for (const Elements size : once) {
    if (size == Elements(0)) continue;
    if (open.params == 0 || size > unrounded - open.used) {
      if (open.params > 0) result.packing.Append(open);
      open = RuleChunk{};
      open.size = *result.chunk_size;
    }
    open.used += size;
    ++open.params;
  }
  result.packing.Append(open);
  return result;
}

}  // namespace castor
