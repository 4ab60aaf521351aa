// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_CHUNK_GRAD_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_CHUNK_GRAD_H_

// What GradientReducer keeps of a chunk's gradient, and how it reduces one.
// Values.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/layout/chunk_state.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"

namespace castor::internal {

// A chunk's gradient since the last step.
struct ChunkGrad {
  GradState state = GradState::kNone;
  Slot slot;                 // while open
  Event opened;              // the slot is zero, or has what came before
  std::vector<Lane*> lanes;  // that may write to it, the opener first
  std::vector<Event> ready;
  int64_t micro_batch = 0;  // for which the next is counted
  size_t params_left = 0;
  bool valid = false;    // its home holds a sum
  bool used_up = false;  // by an early update, and never at home
};

struct Reduction {
  bool traced = true;    // its end is in the trace
  bool updates = false;  // no rank has more of it: it may be updated now
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_CHUNK_GRAD_H_
