// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Gradients that stay in the trainer's memory. Nothing is copied or zeroed: the
// norm and the update read each where it is. One rank reduces nothing, so such
// a gradient counts as reduced at once.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "collectives/engine/gradients/gradient_reducer.h"

namespace castor::internal {
namespace {

// What kernels read at once.
constexpr uintptr_t kGradAlign = 64;

}  // namespace

Status GradientReducer::Borrow(std::span<const ParamId> params,
                               std::span<std::byte* const> grads, Lane& lane) {
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamId param = params[i];
    CASTOR_CHECK(param.valid() && param.index() < model_.params.size());
    CASTOR_RETURN_IF_ERROR(CheckOpens(param));
    if (progress_.params[param.index()].borrowed != nullptr) {
      return FailedPrecondition(fmt::format(
          "the gradient of {} is borrowed already: add up in one place, and "
          "call BorrowGrads() once a step",
          model_.Name(param)));
    }
    if (!model_.chunk_of(param).valid()) continue;
    const auto address = reinterpret_cast<uintptr_t>(grads[i]);
    if (address == 0 || address % kGradAlign != 0) {
      return InvalidArgument(fmt::format(
          "the gradient of {} is at {:#x}: give memory that begins at a "
          "multiple of {} bytes",
          model_.Name(param), address, kGradAlign));
    }
  }
  memory_.device_lane().Wait(lane.Record());
  for (size_t i = 0; i < params.size(); ++i) {
    ParamProgress& own = progress_.params[params[i].index()];
    CASTOR_ASSIGN_OR_RETURN(own.state, Next(params[i], ParamEvent::kOpen));
    CASTOR_ASSIGN_OR_RETURN(own.state, Next(params[i], ParamEvent::kHandBack));
    own.used = true;
    const ChunkId chunk = model_.chunk_of(params[i]);
    if (!chunk.valid()) continue;
    own.borrowed = grads[i];
    ChunkGrad& grad = grads_[chunk.index()];
    if (!grad.valid) norm_.Note(chunk);
    grad.valid = true;
    if (norm_.counting()) norm_.AddBorrowed(params[i]);
  }
  return lane.status();
}

}  // namespace castor::internal
