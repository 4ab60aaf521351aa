// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_SIMULATED_ENGINE_H_
#define CASTOR_PLACEMENT_SIMULATION_SIMULATED_ENGINE_H_

// What an engine made of its budgets when it was sealed, as far as a simulation
// of its steps must know it: which states of which chunks one rank keeps, where
// their homes are, and which slots serve the step. Made by
// collectives/answers/simulated_engine_of.h as the engine makes it. Values.

#include <array>
#include <cstdint>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/plan.h"
#include "placement/run_event.h"

namespace castor {

struct SimulatedState {
  Bytes bytes;    // that this rank keeps; 0: the state does not exist
  Bytes updated;  // of them, what this rank's optimizer works on
  Tier home = Tier::kHost;
  Bytes offset;  // of its slot, where the home is NVMe
};

struct SimulatedChunk {
  std::array<SimulatedState, kStateKinds> states;  // by StateKind
  Bytes gathered;                                  // parameters, when whole
  Bytes gathered_grad;                             // its gradient, when whole
  Elements updated;  // that this rank's optimizer works on
  // Bytes of memory that a pass of the optimizer reads and writes.
  Bytes update_traffic;
};

struct SimulatedEngine {
  int rank = 0;
  int world = 1;
  // Ranks among which parameters are gathered, reduced slices of gradients, and
  // updated parameters for the others' copies; 1: there is nothing to gather.
  int param_ranks = 1;
  int joined_ranks = 1;
  int refreshed_ranks = 1;
  std::vector<SimulatedChunk> chunks;  // by ChunkId
  PlanProblem problem;                 // its slots hold gathered chunks
  std::vector<Bytes> slot_bytes;       // by class of the problem
  PlanPolicy policy = PlanPolicy::kAuto;
  // Slots that are taken for good, by TierIndex: homes, staging, leases, norm.
  std::array<Bytes, 3> settled;
  int64_t staging_slots = 0;
  int64_t fetch_slots = 0;  // of these, for fetches alone
  // The sum of squares on its way from the device, once a step; 0: no norm is
  // computed.
  Bytes norm;
  int64_t agreed_words = 0;  // of 8 bytes, on which ranks agree in a step
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_SIMULATION_SIMULATED_ENGINE_H_
