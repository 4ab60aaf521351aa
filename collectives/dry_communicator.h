// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_DRY_COMMUNICATOR_H_
#define CASTOR_COLLECTIVES_DRY_COMMUNICATOR_H_

// The communicator of one rank that stands for all ranks of a world without
// bytes: the others do the same, at about the same time. A collective moves
// nothing and takes what a ring takes. What ranks agree on is what this rank
// says. Owner thread only.
//
// All ranks come to a collective at the same time but for one thing. Where a
// collective takes no time, who comes last finds the collective over at once,
// and what that rank has queued elsewhere for that time follows; for others it
// goes before. So the first and the last rank may differ by one wait on a link.
// Whoever wants both runs one after the other until each finds the other where
// it was taken to be (`other_ns`).

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "placement/tier_model.h"

namespace castor {

// When the ranks that come first and last meet, by the order of collectives.
struct DryMeetings {
  bool comes_last = false;        // this rank
  std::vector<int64_t> other_ns;  // when the other comes, where that is later
  std::vector<int64_t> own_ns;    // filled: when this one came
};

struct DryCommunicatorOptions {
  int world = 1;
  int rank = 0;
  // Of each host; empty: no time.
  std::optional<RingModel> all_gather = {};
  std::optional<RingModel> reduce_scatter = {};
  // All outlive the communicator.
  Executor* executor = nullptr;
  Timer* timer = nullptr;
  DryMeetings* meetings = nullptr;
};

std::unique_ptr<Communicator> MakeDryCommunicator(
    const DryCommunicatorOptions& options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_DRY_COMMUNICATOR_H_
