// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_OPTIMIZER_GROUPS_H_
#define CASTOR_COLLECTIVES_OPTIMIZER_GROUPS_H_

// Groups of parameters with hyper-parameters of their own, as PyTorch's
// param_groups: which parameters are in one says ZeroEngine::Register. Groups
// have nothing to do with where parameters lie: a chunk holds parameters of
// several, and each is updated with the numbers of its own. Which optimizer,
// how many moments and in what type is the same for all, but that Adam's weight
// decay may be AdamW's, and SGD's momentum 0. Thread-compatible.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "offload/kernels/optimizer_options.h"

namespace castor {

// What is not set is as for parameters without a group.
struct OptimizerGroup {
  std::string name;
  // Times the rate that Step is given, unless the group has a rate of its own.
  double lr_scale = 1;
  // A rate of its own from the start, as SetLearningRate gives it one.
  std::optional<double> lr = {};
  std::optional<double> beta1 = {};
  std::optional<double> beta2 = {};
  std::optional<double> eps = {};
  std::optional<double> weight_decay = {};
  std::optional<double> momentum = {};
  std::optional<OptimizerKind> kind = {};  // kAdam and kAdamW for each other
  std::optional<UpdateSpan> span = {};     // of a custom optimizer
  // How many of the custom optimizer's states are kept of the group's
  // parameters: the first ones.
  std::optional<int> states = {};
};

// Numbers of a group to be changed between steps; what is not set stays.
struct HyperParameters {
  std::optional<double> beta1 = {};
  std::optional<double> beta2 = {};
  std::optional<double> eps = {};
  std::optional<double> weight_decay = {};
  std::optional<double> momentum = {};
};

// InvalidArgument, naming the group and its numbers, where a name is empty or
// given twice, or the optimizer is undefined for the numbers.
Status CheckOptimizerGroups(const OptimizerOptions& optimizer,
                            std::span<const OptimizerGroup> groups);

// InvalidArgument where it is negative, infinite or not a number.
Status CheckLearningRate(double lr);

class OptimizerGroups {
 public:
  // REQUIRES: CheckOptimizerGroups is ok.
  OptimizerGroups(const OptimizerOptions& optimizer,
                  std::span<const OptimizerGroup> groups);

  // The group's number; 0 for the empty name: what is in no group.
  // InvalidArgument, with the names there are.
  Result<size_t> Find(std::string_view name) const;

  // From now on the group's rate, whatever the step's. The empty name: of what
  // is in no group. InvalidArgument as Find and as CheckLearningRate.
  Status SetLearningRate(std::string_view name, double lr);

  // From now on these numbers of the group, as SetLearningRate. InvalidArgument
  // where the optimizer is undefined for them, or begins to keep a moment:
  // nothing has changed then.
  Status SetHyperParameters(std::string_view name,
                            const HyperParameters& numbers);

  // What SetLearningRate said last, by the group's name: for checkpoints, since
  // nothing else tells them. Others have their rate from the options and Step.
  std::map<std::string, double> GivenRates() const;

  // What an update of the group's parameters needs at least.
  UpdateSpan SpanOf(size_t group) const;
  // How many states are kept of its parameters; -1: all.
  int StatesOf(size_t group) const;

  // The group's rate in a step of rate `lr`.
  double RateOf(size_t group, double lr) const;

  // What a parameter of the group is updated with in a step of rate `lr`.
  OptimizerOptions OptionsOf(size_t group, double lr) const;

  // Of all numbers that a step of rate `lr` depends on and that may change.
  uint64_t HashOfRates(double lr) const;

 private:
  struct Group {
    std::string name;
    OptimizerOptions options;
    double lr_scale = 1;
    std::optional<double> own_lr;    // by the options
    std::optional<double> given_lr;  // by SetLearningRate
    int states = -1;
  };

  double RateOf(const Group& group, double lr) const {
    if (group.given_lr) return *group.given_lr;
    return group.own_lr.value_or(lr * group.lr_scale);
  }

  OptimizerOptions of_all_;    // as it began: its moments are kept
  std::vector<Group> groups_;  // the first has no name
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_OPTIMIZER_GROUPS_H_
