// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/optimizer_groups.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "chunk/base/check.h"
#include "collectives/world/value_hash.h"

namespace castor {
namespace {

// Nesterov's momentum is none where there is no momentum, as in PyTorch.
OptimizerOptions WithMomentum(OptimizerOptions options,
                              const OptimizerOptions& of_all, double momentum) {
  options.momentum = momentum;
  options.nesterov = of_all.nesterov && momentum != 0;
  return options;
}

bool IsAdam(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
}

// The moments are those of all parameters.
Status CheckMoments(const OptimizerOptions& options,
                    const OptimizerOptions& of_all) {
  if (MomentsOf(options) <= MomentsOf(of_all)) return OkStatus();
  return InvalidArgument(fmt::format(
      "a momentum of {} needs a moment, and none is kept, as Seal() decides: "
      "begin with a momentum of the optimizer that is not 0",
      options.momentum));
}

OptimizerOptions OptionsFor(OptimizerOptions options,
                            const OptimizerGroup& group) {
  options.beta1 = group.beta1.value_or(options.beta1);
  options.beta2 = group.beta2.value_or(options.beta2);
  options.eps = group.eps.value_or(options.eps);
  options.weight_decay = group.weight_decay.value_or(options.weight_decay);
  options.kind = group.kind.value_or(options.kind);
  options.span = group.span.value_or(options.span);
  return WithMomentum(options, options,
                      group.momentum.value_or(options.momentum));
}

std::string GroupText(std::string_view name) {
  return name.empty() ? std::string("parameters in no group")
                      : fmt::format("optimizer group {}", name);
}

}  // namespace

Status CheckOptimizerGroups(const OptimizerOptions& optimizer,
                            std::span<const OptimizerGroup> groups) {
  std::set<std::string_view> names;
  for (const OptimizerGroup& group : groups) {
    if (group.name.empty()) {
      return InvalidArgument(
          "an optimizer group has no name: parameters name the group they are "
          "in");
    }
    if (!names.insert(group.name).second) {
      return InvalidArgument(fmt::format(
          "there are two optimizer groups of the name {}", group.name));
    }
    if (!(group.lr_scale >= 0) || std::isinf(group.lr_scale)) {
      return InvalidArgument(fmt::format(
          "optimizer group {} scales the learning rate by {}, which has no "
          "meaning: give 0 or more",
          group.name, group.lr_scale));
    }
    if (group.kind && *group.kind != optimizer.kind &&
        !(IsAdam(*group.kind) && IsAdam(optimizer.kind))) {
      return InvalidArgument(fmt::format(
          "optimizer group {} is of {}, and the optimizer is {}: groups may "
          "differ as adam and adamw do",
          group.name, OptimizerName(*group.kind),
          OptimizerName(optimizer.kind)));
    }
    const auto most = static_cast<int>(optimizer.states.size());
    if (group.states && (*group.states < 0 || *group.states > most)) {
      return InvalidArgument(fmt::format(
          "optimizer group {} keeps {} states of a custom optimizer, which has "
          "{}",
          group.name, *group.states, most));
    }
    if (group.span && optimizer.kind != OptimizerKind::kCustom) {
      return InvalidArgument(fmt::format(
          "optimizer group {} says what its update needs, which {} knows by "
          "itself: leave the span away",
          group.name, OptimizerName(optimizer.kind)));
    }
    const OptimizerOptions options = OptionsFor(optimizer, group);
    Status valid = ValidateOptimizerOptions(options);
    if (valid.ok()) valid = CheckMoments(options, optimizer);
    if (valid.ok() && group.lr) valid = CheckLearningRate(*group.lr);
    if (!valid.ok()) {
      return valid.WithContext(fmt::format("optimizer group {}", group.name));
    }
  }
  return OkStatus();
}

Status CheckLearningRate(double lr) {
  if (lr >= 0 && !std::isinf(lr)) return OkStatus();
  return InvalidArgument(
      fmt::format("a learning rate of {} has no meaning", lr));
}

OptimizerGroups::OptimizerGroups(const OptimizerOptions& optimizer,
                                 std::span<const OptimizerGroup> groups)
    : of_all_(optimizer) {
  groups_.push_back({"", optimizer, 1, std::nullopt, std::nullopt, -1});
  for (const OptimizerGroup& group : groups) {
    groups_.push_back({group.name, OptionsFor(optimizer, group), group.lr_scale,
                       group.lr, std::nullopt, group.states.value_or(-1)});
  }
}

Result<size_t> OptimizerGroups::Find(std::string_view name) const {
  std::string known;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].name == name) return g;
    if (g > 0) known += fmt::format("{}{}", g > 1 ? ", " : "", groups_[g].name);
  }
  return InvalidArgument(
      fmt::format("there is no optimizer group {}: {}", name,
                  known.empty() ? std::string("the options name none")
                                : fmt::format("the options name {}", known)));
}

Status OptimizerGroups::SetLearningRate(std::string_view name, double lr) {
  CASTOR_ASSIGN_OR_RETURN(const size_t group, Find(name));
  CASTOR_RETURN_IF_ERROR(CheckLearningRate(lr));
  groups_[group].given_lr = lr;
  return OkStatus();
}

Status OptimizerGroups::SetHyperParameters(std::string_view name,
                                           const HyperParameters& numbers) {
  CASTOR_ASSIGN_OR_RETURN(const size_t group, Find(name));
  OptimizerOptions changed = groups_[group].options;
  changed.beta1 = numbers.beta1.value_or(changed.beta1);
  changed.beta2 = numbers.beta2.value_or(changed.beta2);
  changed.eps = numbers.eps.value_or(changed.eps);
  changed.weight_decay = numbers.weight_decay.value_or(changed.weight_decay);
  changed = WithMomentum(changed, of_all_,
                         numbers.momentum.value_or(changed.momentum));
  Status valid = ValidateOptimizerOptions(changed);
  if (valid.ok()) valid = CheckMoments(changed, of_all_);
  CASTOR_RETURN_IF_ERROR(valid.WithContext(GroupText(name)));
  groups_[group].options = changed;
  return OkStatus();
}

std::map<std::string, double> OptimizerGroups::GivenRates() const {
  std::map<std::string, double> rates;
  for (const Group& group : groups_) {
    if (group.given_lr) rates.emplace(group.name, *group.given_lr);
  }
  return rates;
}

double OptimizerGroups::RateOf(size_t group, double lr) const {
  CASTOR_CHECK(group < groups_.size());
  return RateOf(groups_[group], lr);
}

UpdateSpan OptimizerGroups::SpanOf(size_t group) const {
  CASTOR_CHECK(group < groups_.size());
  return groups_[group].options.span;
}

int OptimizerGroups::StatesOf(size_t group) const {
  CASTOR_CHECK(group < groups_.size());
  return groups_[group].states;
}

OptimizerOptions OptimizerGroups::OptionsOf(size_t group, double lr) const {
  CASTOR_CHECK(group < groups_.size());
  OptimizerOptions options = groups_[group].options;
  options.lr = RateOf(groups_[group], lr);
  return options;
}

uint64_t OptimizerGroups::HashOfRates(double lr) const {
  internal::ValueHash hash;
  for (const Group& group : groups_) {
    const OptimizerOptions& options = group.options;
    for (const double number :
         {RateOf(group, lr), options.beta1, options.beta2, options.eps,
          options.weight_decay, options.momentum}) {
      hash.Add(number);
    }
  }
  return hash.value();
}

}  // namespace castor
