// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_STATE_KIND_H_
#define CASTOR_PLACEMENT_STATE_KIND_H_

// The states of training that a chunk exists in; all of them mirror one layout.
// Behind parameters, gradients and masters come the optimizer's own states, as
// many as it keeps, under the names that the optimizer gives them. Values.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace castor {

// Others are the optimizer's: OptimizerState(0), OptimizerState(1), ...
enum class StateKind : uint8_t { kParam, kGrad, kMaster };

inline constexpr std::string_view kParamName = "param";
inline constexpr std::string_view kGradName = "grad";
inline constexpr std::string_view kMasterName = "master";
// Stands for every state where one may be named, so none is called so.
inline constexpr std::string_view kAllStates = "all";

// Adan keeps four and AMSGrad three; none that is known keeps more than six.
inline constexpr int kMaxOptimizerStates = 8;
inline constexpr int kFirstOptimizerState = 3;
inline constexpr int kStateKinds = kFirstOptimizerState + kMaxOptimizerStates;

// REQUIRES: 0 <= index < kMaxOptimizerStates.
constexpr StateKind OptimizerState(int index) {
  return static_cast<StateKind>(kFirstOptimizerState + index);
}
constexpr bool IsOptimizerState(StateKind state) {
  return static_cast<int>(state) >= kFirstOptimizerState;
}
// REQUIRES: IsOptimizerState.
constexpr int OptimizerStateIndex(StateKind state) {
  return static_cast<int>(state) - kFirstOptimizerState;
}

inline constexpr size_t kMaxStateNameBytes = 64;

// Letters of ASCII, digits and underscores, at least one of them and at most
// kMaxStateNameBytes.
bool IsStateName(std::string_view text);

// Whether an optimizer may call its states so: at most kMaxOptimizerStates,
// each a state name, unlike the others, and none of those above, nor of the
// words that documents have beside states, such as "peak" and "staging".
bool AreOptimizerStates(std::span<const std::string> names);

// What states are called: "param", "grad", "master", and what the optimizer
// says ("exp_avg", "momentum_buffer").
class StateNames {
 public:
  // Those of Adam: exp_avg, exp_avg_sq.
  StateNames();
  // REQUIRES: AreOptimizerStates.
  explicit StateNames(std::vector<std::string> of_optimizer);

  // Of a state that the optimizer does not keep: "state5" and such.
  std::string_view of(StateKind state) const;
  // Empty where no state has this name.
  std::optional<StateKind> Find(std::string_view name) const;
  // How many states the optimizer keeps.
  int optimizer_states() const { return static_cast<int>(names_.size()); }
  const std::vector<std::string>& of_optimizer() const { return names_; }
  // How many states there may be, and how they are called, in order.
  int states() const { return kFirstOptimizerState + optimizer_states(); }
  std::vector<std::string> all() const;

  friend bool operator==(const StateNames&, const StateNames&) = default;

 private:
  std::vector<std::string> names_;  // of the optimizer's
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_STATE_KIND_H_
