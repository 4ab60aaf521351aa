// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CUSTOM_UPDATE_H_
#define CASTOR_COLLECTIVES_CUSTOM_UPDATE_H_

// The update of an optimizer that is the program's own
// (OptimizerKind::kCustom). The engine keeps the optimizer's states, wherever
// they live, and hands them to the program's function in pieces, together with
// the parameters and their gradients. Values.

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "placement/state_kind.h"

namespace castor {

// A run of one parameter's elements; pointers are aligned to 4 bytes.
struct UpdateRun {
  ParamId param;
  int64_t first_element = 0;  // in the parameter
  int64_t elements = 0;
  int64_t step = 0;  // of this parameter's updates, from 1
  double lr = 0;     // of its group
  float* values = nullptr;
  void* grad = nullptr;  // may be written to
  // As many as the optimizer keeps, all zero in step 1.
  std::array<float*, kMaxOptimizerStates> states = {};
};

struct UpdateCall {
  std::span<const UpdateRun> runs;
  // On the host gradients are kF32 and the factor is 1. On a device both are as
  // the engine keeps them: a gradient is to be multiplied by the factor, which
  // averages, unscales and clips it.
  DType grad_dtype = DType::kF32;
  float grad_factor = 1;
  bool on_device = false;  // pointers are to device memory
  void* stream = nullptr;  // of the device: the work is queued there
};

// Called from a thread of the engine's, one call at a time, in no order that a
// program may build on. It may not call the engine. FailedPrecondition says
// that this call changed nothing, any other failure that it may have.
using UpdateFunction = std::function<Status(const UpdateCall&)>;

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CUSTOM_UPDATE_H_
