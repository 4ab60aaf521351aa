// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/call_rules.h"

#include <fmt/format.h>

#include "chunk/text/units_text.h"

namespace castor::internal {

Status CallRules::RequireStates() const {
  if (progress_.phase != EnginePhase::kSealed) [[unlikely]] {
    return FailedPrecondition(progress_.phase == EnginePhase::kOpen
                                  ? "the engine is not sealed yet: call Seal()"
                                  : "the engine is closed");
  }
  return health_.status();
}

Status CallRules::RequireSealed() const {
  if (progress_.parked) [[unlikely]] {
    return FailedPrecondition("the engine is parked: call Resume() first");
  }
  return RequireStates();
}

Status CallRules::RequireNoLeases(std::string_view call) const {
  if (memory_.pinned()) {
    return FailedPrecondition(fmt::format(
        "parameters are still held: release every lease before {}", call));
  }
  if (memory_.arena().leases() > 0) {
    return FailedPrecondition(fmt::format(
        "{} of borrowed memory are still held: release every lease before {}",
        FormatBytes(memory_.arena().in_use()), call));
  }
  return OkStatus();
}

Status CallRules::RequireNothingOpen(std::string_view call) const {
  if (!model_.options.own_lease_ends && memory_.pinned()) {
    return FailedPrecondition(fmt::format(
        "parameters are still held: release every lease before {}", call));
  }
  if (progress_.evaluating > 0) {
    return FailedPrecondition(
        fmt::format("an evaluation is still open: end it before {}", call));
  }
  return OkStatus();
}

Status CallRules::RequireBetweenSteps(std::string_view call) const {
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen(call));
  if (progress_.micro_batches == 0) return OkStatus();
  return FailedPrecondition(fmt::format(
      "a step is half done: call Step() or Abandon() before {}", call));
}

Status CallRules::RequireWritable(ParamId param, std::string_view call) const {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen(call));
  CASTOR_CHECK(param.valid() && param.index() < model_.params.size());
  if (progress_.micro_batches == 0) return OkStatus();
  return FailedPrecondition(
      fmt::format("a step is half done, with gradients of the old values of "
                  "{}: call Step() "
                  "or Abandon() before {}",
                  model_.Name(param), call));
}

}  // namespace castor::internal
