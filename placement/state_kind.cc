// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/state_kind.h"

#include <algorithm>
#include <array>
#include <utility>

#include "chunk/base/check.h"

namespace castor {
namespace {

constexpr std::array<std::string_view, kFirstOptimizerState> kOfEngine = {
    kParamName, kGradName, kMasterName};
// Documents have bytes under these words next to the bytes of each state.
constexpr std::array<std::string_view, 12> kBesideStates = {
    "budget", "communicator", "gathered", "home",     "in_use",   "kept",
    "leases", "norm",         "peak",     "prefetch", "rounding", "staging"};
constexpr std::array<std::string_view, kMaxOptimizerStates> kNotKept = {
    "state3", "state4", "state5", "state6",
    "state7", "state8", "state9", "state10"};

bool IsStateNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

bool IsStateName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxStateNameBytes &&
         std::ranges::all_of(text, IsStateNameChar);
}

bool AreOptimizerStates(std::span<const std::string> names) {
  if (names.size() > kMaxOptimizerStates) return false;
  std::vector<std::string_view> taken(kOfEngine.begin(), kOfEngine.end());
  taken.push_back(kAllStates);
  taken.insert(taken.end(), kBesideStates.begin(), kBesideStates.end());
  for (const std::string& name : names) {
    if (!IsStateName(name)) return false;
    if (std::ranges::find(taken, name) != taken.end()) return false;
    taken.push_back(name);
  }
  return true;
}

StateNames::StateNames() : names_({"exp_avg", "exp_avg_sq"}) {}

StateNames::StateNames(std::vector<std::string> of_optimizer)
    : names_(std::move(of_optimizer)) {
  CASTOR_CHECK(AreOptimizerStates(names_));
}

std::string_view StateNames::of(StateKind state) const {
  if (!IsOptimizerState(state)) return kOfEngine[static_cast<size_t>(state)];
  const auto index = static_cast<size_t>(OptimizerStateIndex(state));
  return index < names_.size() ? names_[index] : kNotKept[index];
}

std::optional<StateKind> StateNames::Find(std::string_view name) const {
  for (int k = 0; k < states(); ++k) {
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

}  // namespace castor
