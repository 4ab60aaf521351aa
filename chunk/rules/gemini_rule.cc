// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/gemini_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/rules/grid_search.h"

namespace castor {
namespace {

// Mean plus three standard deviations of the population.
double FilterLimit(std::span<const RuleParam> params) {
  Elements sum;
  for (const RuleParam& param : params) sum += param.size;
  const double count = static_cast<double>(params.size());
  const double mean = static_cast<double>(sum.count()) / count;
  double squares = 0;
  for (const RuleParam& param : params) {
    const double off = static_cast<double>(param.size.count()) - mean;
    squares += off * off;
  }
  return mean + 3 * std::sqrt(squares / count);
}

double Fraction(Elements part, Elements rest) {
  const double sum = static_cast<double>((part + rest).count());
  return sum > 0 ? static_cast<double>(part.count()) / sum : 0;
}

}  // namespace

RulePacking PackAsGemini(std::span<const RuleParam> params, Elements chunk_size,
                         int world) {
  CASTOR_CHECK_GT(chunk_size, Elements(0));
  CASTOR_CHECK_GT(world, 0);
  RulePacking packing;
  RuleChunk open;
  for (const RuleParam& param : params) {
    if (!param.trainable || param.size == Elements(0)) continue;
    // A chunk of its own stays open too: what rounding left may be taken.
    if (param.size > open.size - open.used) {
      if (open.params > 0) packing.Append(open);
      open = RuleChunk{};
      open.own = param.size > chunk_size;
      open.size = open.own ? RoundUp(param.size, Elements(world)) : chunk_size;
    }
    open.used += param.size;
    ++open.params;
  }
  if (open.params > 0) packing.Append(open);
  return packing;
}

RuleResult ApplyGeminiRule(std::span<const RuleParam> params,
                           const GeminiRuleOptions& options) {
  CASTOR_CHECK_GT(options.world, 0);
  CASTOR_CHECK_GT(options.step, Elements(0));
  RuleResult result;
  result.rule = CompatibilityRule::kGemini;
  Elements total;
  for (const RuleParam& param : params) {
    total += param.size;
    if (param.trainable) continue;
    ++result.unpacked_params;
    result.unpacked += param.size;
  }
  CASTOR_CHECK_GT(total, Elements(0));

  if (total < options.min_chunk) {
    result.chunk_size = total;
    result.replicated = true;
    result.packing = PackAsGemini(params, total, options.world);
    return result;
  }

  const double limit = FilterLimit(params);
  std::vector<Elements> kept;
  Elements largest = options.min_chunk;
  for (const RuleParam& param : params) {
    if (options.filter && static_cast<double>(param.size.count()) > limit) {
      ++result.ignored_params;
      result.ignored += param.size;
      continue;
    }
    kept.push_back(param.size);
    largest = std::max(largest, param.size);
  }
  if (result.ignored_params > 0) {
    result.ignored_why = fmt::format(
        "more than {:.0f} elements, the mean and three standard deviations",
        limit);
  }
  // All parameters kept may be empty, and no minimum set.
  const Elements start = RoundUp(std::max(largest, Elements(1)), options.step);
  const GridChoice choice =
      LeastWasteOnGrid(kept, start, start + options.range, options.step);
  result.claimed_waste = choice.waste;
  result.claimed_fraction = Fraction(choice.waste, total);
  result.chunk_size = RoundUp(choice.chunk_size, Elements(options.world));
  result.packing = PackAsGemini(params, *result.chunk_size, options.world);
  return result;
}

}  // namespace castor
