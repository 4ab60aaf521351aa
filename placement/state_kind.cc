// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/state_kind.h"

#include <array>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

constexpr std::array<std::string_view, kFirstOptimizerState> kOfEngine = {
    "param", "grad", "master"};
constexpr std::array<std::string_view, kMaxOptimizerStates> kNotKept = {
    "state3", "state4", "state5", "state6",
    "state7", "state8", "state9", "state10"};

}  // namespace

StateNames::StateNames() : names_({"exp_avg", "exp_avg_sq"}) {}

StateNames::StateNames(std::vector<std::string> of_optimizer)
    : names_(std::move(of_optimizer)) {
  CASTOR_CHECK(names_.size() <= kMaxOptimizerStates);
}

std::string_view StateNames::of(StateKind state) const {
  if (!IsOptimizerState(state)) return kOfEngine[static_cast<size_t>(state)];
  const auto index = static_cast<size_t>(OptimizerStateIndex(state));
  return index < names_.size() ? names_[index] : kNotKept[index];
}

std::optional<StateKind> StateNames::Find(std::string_view name) const {
  for (size_t k = 0; k < kFirstOptimizerState + names_.size(); ++k) {
    const auto state = static_cast<StateKind>(k);
    if (of(state) == name) return state;
  }
  return std::nullopt;
}

std::vector<std::string> StateNames::all() const {
  std::vector<std::string> names(kOfEngine.begin(), kOfEngine.end());
  names.insert(names.end(), names_.begin(), names_.end());
  return names;
}

std::string_view StateKindName(StateKind kind) {
  static const StateNames names;
  return names.of(kind);
}

}  // namespace castor
