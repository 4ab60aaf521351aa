// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_DRY_SIMULATION_RESULT_H_
#define CASTOR_COLLECTIVES_DRY_SIMULATION_RESULT_H_

// What a run without bytes (dry_run.h) tells of the steps that it made, and
// what it tells apart. Values.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "chunk/base/units.h"
#include "placement/run_event.h"
#include "placement/step_traffic.h"

namespace castor {

// Who computes.
enum class SimTrainer : uint8_t {
  kStream,  // a lane of the device: calls return at once
  kThread,  // the calling thread: a call returns when the chunk is there
};

// What can hold a step up.
enum class SimResource : uint8_t {
  kCompute,      // the trainer
  kToDevice,     // the link to the device
  kFromDevice,   // and from it
  kNvme,         // the drives, reading or writing
  kHost,         // the optimizer and other passes of the host
  kCollectives,  // with other ranks
  kDevice,       // the engine's kernels there
};
inline constexpr int kSimResources = 7;

// "compute", "host to device", ...
std::string_view SimResourceName(SimResource resource);

// From the end of the step before (for the first one, from the start) to the
// end of this one: when the trainer's lane gets to the call of Step.
struct SimulatedStep {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  StepTraffic traffic;  // that the step asked for
  int64_t prefetched_fetches = 0;
  int64_t prefetched_gathers = 0;
  int64_t cancelled_gathers = 0;  // of these, taken back before they began
  int64_t releases = 0;
  int64_t divergences = 0;  // 1 where the step departed from the plan
  int64_t reduce_scatters = 0;
  std::array<int64_t, kSimResources> busy_ns{};  // by SimResource
  // The trainer's lane waited for parameters, by RunCause; with kGradient for a
  // place to put gradients into.
  std::array<StallSum, kRunCauses> stalls{};

  int64_t ns() const { return end_ns - begin_ns; }
  // Those that were asked for when somebody was there to wait for them.
  int64_t demand_gathers() const {
    return traffic.gathers - prefetched_gathers;
  }
  int64_t demand_fetches() const {
    return traffic.fetches - prefetched_fetches;
  }
  int64_t busy(SimResource resource) const {
    return busy_ns[static_cast<size_t>(resource)];
  }
  // The trainer's lane neither computed nor waited for a chunk: it waited for
  // the end of the step before.
  int64_t idle_ns() const;
  // The one that is busy longest, the first of several.
  SimResource critical() const;

  friend bool operator==(const SimulatedStep&, const SimulatedStep&) = default;
};

struct SimulationResult {
  std::vector<SimulatedStep> steps;
  // Of the last step, by ChunkId; what is of no chunk is in its traffic alone.
  std::vector<StepTraffic> by_chunk;
  std::array<Bytes, 3> peak;  // by TierIndex, of all steps

  // The last step: every one before it was like it but for the first.
  const SimulatedStep& steady() const { return steps.back(); }
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_DRY_SIMULATION_RESULT_H_
