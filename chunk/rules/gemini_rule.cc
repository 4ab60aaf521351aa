// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/rules/gemini_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/chunk_layout.h"
#include "chunk/chunk_size_search.h"
#include "chunk/layout/size_family.h"
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

Status CheckOptions(const GeminiRuleOptions& options) {
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions({.world = options.world}));
  static constexpr Elements kLargest(int64_t{1} << 40);
  const auto check = [](std::string_view what, Elements value,
                        Elements least) -> Status {
    if (value >= least && value <= kLargest) return OkStatus();
    return InvalidArgument(
        fmt::format("{} of {} elements: it must be between {} and {}", what,
                    value.count(), least.count(), kLargest.count()));
  };
  CASTOR_RETURN_IF_ERROR(
      check("Gemini's least chunk", options.min_chunk, Elements(0)));
  CASTOR_RETURN_IF_ERROR(
      check("Gemini's search range", options.range, Elements(0)));
  return check("Gemini's step", options.step, Elements(1));
}

}  // namespace

Result<std::vector<RuleParam>> RuleParams(std::span<const ParamSpec> params) {
  std::vector<RuleParam> seen;
  seen.reserve(params.size());
  Elements total;
  for (const ParamSpec& param : params) {
    const Result<Elements> size = CountElements(param.shape, param.dtype);
    if (!size.ok()) {
      return size.status().WithContext(
          fmt::format("parameter '{}'", param.name));
    }
    if (*size > kMaxRuleElements || total > kMaxRuleElements - *size) {
      return InvalidArgument(fmt::format(
          "the list holds more than {} elements, which no rule was made for; "
          "give fewer or smaller parameters",
          kMaxRuleElements.count()));
    }
    total += *size;
    seen.push_back({*size, param.trainable});
  }
  if (total == Elements(0)) {
    return InvalidArgument(
        "the list holds no element, and no rule has a chunk size for that; "
        "give a model with parameters");
  }
  return seen;
}

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

Result<RuleResult> ApplyGeminiRule(std::span<const RuleParam> params,
                                   const GeminiRuleOptions& options) {
  CASTOR_RETURN_IF_ERROR(CheckOptions(options));
  RuleResult result;
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
  result.packing = PackAsGemini(params, result.chunk_size, options.world);
  return result;
}

Result<std::vector<ChunkSizeCandidate>> GeminiInCastor(
    Elements chunk_size, std::span<const ParamSpec> params,
    const PackOptions& options, int64_t gathered_slots) {
  CASTOR_CHECK_GT(chunk_size, Elements(0));
  CASTOR_CHECK_LE(chunk_size, kMaxRuleElements);
  CASTOR_RETURN_IF_ERROR(ValidatePackOptions(options));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<SizeFamily> families,
                          SizeFamilies(params, options));
  std::vector<ChunkSizeCandidate> rows;
  for (const SizeFamily& family : families) {
    const Elements size =
        std::max(RoundUp(chunk_size, family.quantum), family.least);
    CASTOR_ASSIGN_OR_RETURN(
        ChunkSizeCandidate row,
        CostOfChunkSize(family, size, options, gathered_slots));
    row.reason = "the size of gemini";
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace castor
