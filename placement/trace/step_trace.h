// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_STEP_TRACE_H_
#define CASTOR_PLACEMENT_TRACE_STEP_TRACE_H_

// All that is known of one step: its accesses, the trainer's own bytes at each
// moment of it, and how long it computes then. A moment lasts from its access
// to the next one; the last one lasts to the first access of the next step, so
// what comes before the first access belongs to it. Since the slab never grows,
// bytes on lease are all that makes the room for copies vary. Values and pure
// functions, thread-safe. Part of traces (trace.h).

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "placement/trace.h"

namespace castor {

// What is on lease at a time, and the compute times of a step together, may be
// at most: a pebibyte, and eleven days.
inline constexpr Bytes kMaxLeased{int64_t{1} << 50};
inline constexpr int64_t kMaxStepNs = 1'000'000'000'000'000;

// From this moment on, until the next change, so many bytes of the device pool
// are on lease: the most at any time of the moment.
struct LeaseChange {
  int32_t moment = 0;
  Bytes bytes;

  friend bool operator==(const LeaseChange&, const LeaseChange&) = default;
};

// Uses outside of the step, with their ends, between two accesses of it: they
// take slots and time, and no plan knows of them.
struct EvaluationPass {
  int32_t moment =
      0;  // of the access that follows; the number of accesses: none
  Trace accesses;
  std::vector<int64_t> compute_ns;  // as those of a step

  friend bool operator==(const EvaluationPass&,
                         const EvaluationPass&) = default;
};

// A gradient that is complete when the moment ends, and waits from there on for
// its turn to be reduced (reduction_turns.h).
struct WaitingGrad {
  int32_t moment = 0;
  ChunkId chunk;

  friend bool operator==(const WaitingGrad&, const WaitingGrad&) = default;
};

// A trained parameter without a gradient in this step, of a chunk that has one.
// Such a chunk is never updated before the step ends.
struct MissingGrad {
  ChunkId chunk;
  std::string param;  // its name; empty where nobody knows

  friend bool operator==(const MissingGrad&, const MissingGrad&) = default;
};

// Where ends of leases are their holders' own, the trace has the end of a use
// on which ranks agree. The lease of the use that begins at moment `use` ended
// at another time on this rank: before the access `before`; the number of
// accesses: not in the step.
struct LeaseEnd {
  int32_t use = 0;
  int32_t before = 0;

  friend bool operator==(const LeaseEnd&, const LeaseEnd&) = default;
};

struct StepTrace {
  Trace accesses;
  // By rising moments, each unlike the one before; 0 bytes before the first.
  std::vector<LeaseChange> leases;
  // Compute time of each moment, by moment; empty where nobody knows.
  std::vector<int64_t> compute_ns;
  // By moments that do not fall.
  std::vector<EvaluationPass> evaluations = {};
  // By moments that do not fall. Without it, what waited counts as complete
  // when it is reduced: times are later, bytes and slots the same.
  std::vector<WaitingGrad> waiting = {};
  // By chunks that do not fall.
  std::vector<MissingGrad> missing_grads = {};
  // By rising uses.
  std::vector<LeaseEnd> lease_ends = {};
  // The trainer lets each chunk be updated as soon as its gradient of the last
  // micro-batch is reduced.
  bool updates_early = false;

  friend bool operator==(const StepTrace&, const StepTrace&) = default;
};

// On lease at each moment. REQUIRES: a trace that ValidateStep accepts for some
// number of chunks.
std::vector<Bytes> LeasedBytes(const StepTrace& trace);

// By ChunkId: whether a parameter of it is in missing_grads. REQUIRES: as
// above, of `chunks` chunks.
std::vector<bool> ChunksMissingGrads(const StepTrace& trace, size_t chunks);

// Ok, or InvalidArgument naming the first moment at which this is no step of a
// model of `chunks` chunks: an access to a chunk that does not exist, an end
// without a begin, a gradient opened twice, a begin without an end, a gradient
// in an evaluation; or what of leases, times and missing gradients does not
// hold. Any numbers will do.
Status ValidateStep(const StepTrace& trace, size_t chunks);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_STEP_TRACE_H_
