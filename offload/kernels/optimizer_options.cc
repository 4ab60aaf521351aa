// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/kernels/optimizer_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/text/quote.h"
#include "placement/state_kind.h"

namespace castor {
namespace {

constexpr OptimizerKind kKinds[] = {OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                    OptimizerKind::kSgd, OptimizerKind::kLion,
                                    OptimizerKind::kCustom};

bool IsRate(double value) { return value >= 0 && value < 1; }
// Neither negative nor infinite nor a NaN.
bool IsAmount(double value) { return value >= 0 && std::isfinite(value); }

Status ValidateSgd(const OptimizerOptions& options) {
  if (!IsAmount(options.momentum) || !std::isfinite(options.dampening)) {
    return InvalidArgument(
        fmt::format("sgd with momentum {} and dampening {} has no meaning: "
                    "give a momentum "
                    "from 0 up, usually below 1, and a finite dampening",
                    options.momentum, options.dampening));
  }
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    return InvalidArgument(fmt::format(
        "sgd with Nesterov's momentum needs a momentum above 0 and no "
        "dampening, and these are {} and {}",
        options.momentum, options.dampening));
  }
  return OkStatus();
}

Status ValidateCustom(const OptimizerOptions& options) {
  if (options.states.size() > kMaxOptimizerStates) {
    return InvalidArgument(
        fmt::format("a custom optimizer keeps {} states of a parameter's "
                    "shape, and there may be {}",
                    options.states.size(), kMaxOptimizerStates));
  }
  if (options.moment_dtype != DType::kF32) {
    return InvalidArgument(
        "a custom optimizer keeps its states in F32: leave moment_dtype "
        "away");
  }
  for (const std::string& name : options.states) {
    if (IsStateName(name)) continue;
    return InvalidArgument(fmt::format(
        "{} names no state: give letters, digits and underscores, at most {}",
        Quoted(name), kMaxStateNameBytes));
  }
  if (!AreOptimizerStates(options.states)) {
    return InvalidArgument(fmt::format(
        "the states {} are not all called unlike each other and unlike what "
        "Castor has itself, such as param: give each a name of its own",
        fmt::join(options.states, ", ")));
  }
  return OkStatus();
}

}  // namespace

OptimizerOptions DefaultOptimizerOptions(OptimizerKind kind) {
  OptimizerOptions options;
  options.kind = kind;
  if (kind != OptimizerKind::kAdamW) options.weight_decay = 0;
  if (kind == OptimizerKind::kLion) {
    options.lr = 1e-4;
    options.beta2 = 0.99;
  }
  return options;
}

std::string_view OptimizerName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kLion:
      return "lion";
    case OptimizerKind::kCustom:
      return "custom";
  }
  CASTOR_CHECK(false);
}

std::string_view UpdateSpanName(UpdateSpan span) {
  return span == UpdateSpan::kElements ? "elements" : "parameter";
}

std::optional<OptimizerKind> ParseOptimizer(std::string_view name) {
  for (OptimizerKind kind : kKinds) {
    if (name == OptimizerName(kind)) return kind;
  }
  return std::nullopt;
}

Status ValidateOptimizerOptions(const OptimizerOptions& options) {
  const std::string_view name = OptimizerName(options.kind);
  if (options.kind == OptimizerKind::kCustom) return ValidateCustom(options);
  if (!options.states.empty()) {
    return InvalidArgument(fmt::format(
        "{} has states of its own: give names to those of a custom optimizer",
        name));
  }
  if (options.moment_dtype != DType::kF32 &&
      options.moment_dtype != DType::kBF16 &&
      options.moment_dtype != DType::kBlocks8) {
    return InvalidArgument(fmt::format(
        "{} cannot keep its moments in {}: use F32, BF16 or {}", name,
        DTypeName(options.moment_dtype), DTypeName(DType::kBlocks8)));
  }
  if (!IsAmount(options.weight_decay)) {
    return InvalidArgument(
        fmt::format("{} with weight decay {} has no meaning: give 0 or more",
                    name, options.weight_decay));
  }
  if (options.kind == OptimizerKind::kSgd) return ValidateSgd(options);
  if (!IsRate(options.beta1) || !IsRate(options.beta2)) {
    return InvalidArgument(fmt::format(
        "{} with betas {} and {} has no meaning: betas lie in [0, 1)", name,
        options.beta1, options.beta2));
  }
  if (options.kind != OptimizerKind::kLion && !IsAmount(options.eps)) {
    return InvalidArgument(fmt::format(
        "{} with eps {} has no meaning: give 0 or more", name, options.eps));
  }
  return OkStatus();
}

StateNames StateNamesOf(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return StateNames({"exp_avg", "exp_avg_sq"});
    case OptimizerKind::kSgd:
      if (options.momentum == 0) return StateNames(std::vector<std::string>());
      return StateNames({"momentum_buffer"});
    case OptimizerKind::kLion:
      return StateNames({"exp_avg"});
    case OptimizerKind::kCustom:
      return StateNames(options.states);
  }
  CASTOR_CHECK(false);
}

int MomentsOf(const OptimizerOptions& options) {
  return StateNamesOf(options).optimizer_states();
}

}  // namespace castor
