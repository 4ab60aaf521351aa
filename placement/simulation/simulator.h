// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_SIMULATION_SIMULATOR_H_
#define CASTOR_PLACEMENT_SIMULATION_SIMULATOR_H_

// Replays a recorded step on the links of a machine, again and again from the
// first one on, without memory, threads or time: which bytes every link
// carries, how much of each tier is held at most, who waits for what, and how
// long a step takes. Every access is served as the engine serves it, by the
// same plan, and the work of an access is queued on the same lanes in the same
// order. So bytes and peaks are those of a run, to the byte. Times are, too,
// where the run's links have declared speeds (offload/twin) and its clock is
// counted (offload/lanes/virtual_executor.h).
//
// Modelled: the trainer's compute, as the trace tells it; copies to and from
// the device, each direction with latency and bandwidth and slower where both
// are busy, if that was measured; the drive, its pieces, priorities and mixed
// rate; ring collectives, one after the other; the optimizer and sums of
// gradients on the host; host memory, which all of these share; kernels of the
// engine on the device, where its memory's speed is told; evaluations inside a
// step and between steps; steps that depart from the plan, with what was
// fetched ahead for it and is taken back; gradients that are written over
// parameters; ranks that are apart because one of them comes last to all
// collectives. Not modelled: the host's own calls, which take no time; ranks
// that are not alike else; places of gradients over parameters that are cleared
// one by one, or at last where nobody opened them (here a chunk's all at once,
// where it opens); a link or drive that ranks share (give each rank its part:
// ShareOfMachine).
//
// Deterministic: no clock is read, and the same input gives the same result.
// Pure functions, thread-safe.

#include <optional>
#include <span>

#include "chunk/base/status.h"
#include "placement/plan.h"
#include "placement/simulation/simulated_engine.h"
#include "placement/simulation/simulation_result.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"

namespace castor {

struct SimulationOptions {
  // The first one is served on demand, later ones by plan. REQUIRES: >= 1.
  int steps = 4;
  // The engine's plan of the first step, if somebody has made the plan already.
  // REQUIRES: a plan of that trace by the engine's problem and policy; it
  // outlives the call.
  const Plan* plan = nullptr;
  SimTrainer trainer = SimTrainer::kStream;
  // The device's memory: bytes that the engine's kernels read and write there,
  // one after the other. Empty: they take no time.
  std::optional<LinkModel> device_memory = {};
};

// Without compute times in the trace, computing takes none. InvalidArgument
// where the trace is none of the engine's chunks, has no access, or has not
// the gradients of an engine that writes them over parameters
// (grads_in_place.h); Infeasible,
// naming moment and chunks, where it holds more at once than there are slots.
Result<SimulationResult> Simulate(const StepTrace& trace,
                                  const SimulatedEngine& engine,
                                  const TierModel& machine,
                                  const SimulationOptions& options = {});
// Steps that differ, one after the other, in place of options.steps alike. A
// step unlike the step before is served on demand from the departure on, and
// planned anew at its end. REQUIRES: there is one.
Result<SimulationResult> SimulateSteps(std::span<const StepTrace* const> steps,
                                       const SimulatedEngine& engine,
                                       const TierModel& machine,
                                       const SimulationOptions& options = {});

// The same where nothing takes time, compute neither: bytes, counts and peaks
// are those of every machine, but that no fetch is taken back, as each is over
// at once. `plan` is that of SimulationOptions.
Result<SimulationResult> CountSteps(std::span<const StepTrace* const> steps,
                                    const SimulatedEngine& engine,
                                    const Plan* plan);

// A rank's share of a machine on which `ranks` ranks do the same at the same
// time: an even part of memory, the optimizer's cores and the
// drives; links to devices are its own. REQUIRES: ranks >= 1.
TierModel ShareOfMachine(const TierModel& machine, int ranks);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_SIMULATION_SIMULATOR_H_
