// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace castor {
namespace {

bool IsScale(double scale) { return scale > 0 && std::isfinite(scale); }

}  // namespace

Status CheckLossScaling(const LossScaling& scaling) {
  if (scaling.kind == LossScalingKind::kNone) return OkStatus();
  if (!IsScale(scaling.initial)) {
    return InvalidArgument(
        fmt::format("a loss cannot be scaled by {}: give a positive number",
                    scaling.initial));
  }
  if (scaling.kind == LossScalingKind::kStatic) return OkStatus();
  if (!(scaling.growth >= 1) || !std::isfinite(scaling.growth) ||
      !(scaling.backoff > 0) || !(scaling.backoff < 1)) {
    return InvalidArgument(fmt::format(
        "a loss scale that grows by {} and falls by {} has no meaning: the "
        "first is 1 or more, the second between 0 and 1",
        scaling.growth, scaling.backoff));
  }
  if (scaling.growth_interval < 1 || scaling.hysteresis < 1) {
    return InvalidArgument(fmt::format(
        "a loss scale that grows after {} steps and falls at overflow {} has "
        "no meaning: both are 1 or more",
        scaling.growth_interval, scaling.hysteresis));
  }
  if (!IsScale(scaling.least) || !IsScale(scaling.most) ||
      scaling.least > scaling.initial || scaling.initial > scaling.most) {
    return InvalidArgument(
        fmt::format("a loss scale of {} does not lie between {} and {}",
                    scaling.initial, scaling.least, scaling.most));
  }
  return OkStatus();
}

LossScaler::LossScaler(const LossScaling& scaling) : scaling_(scaling) {
  if (looks_for_overflow()) state_.scale = scaling.initial;
  state_.overflows_left = scaling.hysteresis;
}

Status LossScaler::Restore(const LossScaleState& state) {
  const bool dynamic = scaling_.kind == LossScalingKind::kDynamic;
  const bool fits = !dynamic || (state.scale >= scaling_.least &&
                                 state.scale <= scaling_.most);
  if (!fits || state.clean_steps < 0 || state.overflows_left < 1 ||
      state.skipped_steps < 0) {
    return InvalidArgument(fmt::format(
        "a loss scale of {} after {} clean steps, {} overflows before it falls "
        "and {} skipped steps is none that a run of these options has",
        state.scale, state.clean_steps, state.overflows_left,
        state.skipped_steps));
  }
  const double own = state_.scale;
  state_ = state;
  if (!dynamic) state_.scale = own;
  return OkStatus();
}

bool LossScaler::Update(bool overflowed) {
  if (!looks_for_overflow()) return true;
  if (overflowed) {
    ++state_.skipped_steps;
    state_.clean_steps = 0;
    if (scaling_.kind == LossScalingKind::kStatic) return true;
    if (state_.overflows_left > 1) {
      --state_.overflows_left;
      return true;
    }
    const bool falls = state_.scale > scaling_.least;
    state_.scale = std::max(state_.scale * scaling_.backoff, scaling_.least);
    return falls;
  }
  ++state_.clean_steps;
  if (scaling_.kind == LossScalingKind::kDynamic &&
      state_.clean_steps >= scaling_.growth_interval) {
    state_.scale = std::min(state_.scale * scaling_.growth, scaling_.most);
    state_.clean_steps = 0;
    state_.overflows_left = scaling_.hysteresis;
  }
  return true;
}

}  // namespace castor
