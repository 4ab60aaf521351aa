// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ZERO_ENGINE_H_
#define CASTOR_COLLECTIVES_ZERO_ENGINE_H_

// The door for trainers: ZeRO stages 0 to 3 over chunks that live on the
// device, in host memory and on NVMe. One engine per rank. A training step
// reads
//
//   engine->BeginMicroBatch(last);
//   forward:  { auto w = engine->Acquire({qkv_w, qkv_b}, lane); compute; }
//   backward: { auto w = engine->Acquire({qkv_w}, lane);
//               auto g = engine->Grad(qkv_w, lane); add to g; }
//             engine->GradReady(qkv_w, lane);
//   engine->Step(...)   after the last micro-batch
//
// Weights after a step are bit-equal for every stage, chunk size, placement and
// prefetch depth, for a given number of ranks.
//
// The engine owns all memory it hands out: no lease and no EvaluateScope
// outlives it. Lanes that have work on a gradient live until Step or Abandon,
// or that work is done before the engine goes; other work on its memory the
// engine waits for. Owner thread only: all calls of one engine come from one
// thread; several engines in a process share an executor. No call throws. The
// first failure of background work sticks and is returned by every later call.
//
// What it hands out is memory of its device (ZeroOptions::device), for work on
// that device's lanes; the host may touch it where the device says so.
//
// Ranks must agree on all calls from Seal on, in the same order with the same
// arguments, but for Borrow, Close and stats, and for lanes. Ranks that do not
// are told so by an error.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/communicator.h"
#include "collectives/zero_options.h"
#include "offload/lane.h"
#include "offload/memory_manager.h"
#include "placement/run_event.h"

namespace castor {

class ZeroEngine;
struct TraceFile;  // placement/trace_file.h

// Writes the initial values of elements [begin, end) of one parameter to `out`,
// in fp32. Called by Seal, for the ranges this rank owns, in any order and more
// than once, so a value may depend on (parameter, element) only. Without one,
// all values are zero.
using Initializer = std::function<void(int64_t begin, int64_t end, float* out)>;

// Parameters held on the device for work on one lane; the end of its life, or
// Release, records an event on that lane and waits for nothing. Move-only.
class ParamLease {
 public:
  ParamLease() = default;
  ParamLease(ParamLease&& other) noexcept
      : held_(std::exchange(other.held_, nullptr)) {}
  ParamLease& operator=(ParamLease&& other) noexcept;
  ~ParamLease() { Release(); }

  size_t size() const { return held_ == nullptr ? 0 : held_->data.size(); }
  // The i-th parameter asked for: contiguous, in its own dtype, row-major.
  // Readable by work on the lane until the release. Null for a parameter of
  // size zero.
  const void* data(size_t i) const { return held_->data[i]; }
  const float* f32(size_t i) const {
    return static_cast<const float*>(data(i));
  }
  const uint16_t* bf16(size_t i) const {
    return static_cast<const uint16_t*>(data(i));
  }
  void Release() {
    if (held_ != nullptr) GiveBack();
  }

 private:
  friend class ZeroEngine;
  // Lent by the engine, which lends it again: in steady state nothing is
  // allocated.
  struct Held {
    std::vector<ChunkPin> pins;
    std::vector<const void*> data;
    std::vector<Held*>* spare = nullptr;  // where it goes back to
  };

  void GiveBack();

  Held* held_ = nullptr;
};

// Device memory on loan to the trainer, within the device budget. Move-only.
class MemoryLease {
 public:
  MemoryLease() = default;
  MemoryLease(MemoryLease&& other) noexcept;
  MemoryLease& operator=(MemoryLease&& other) noexcept;
  ~MemoryLease() { Release(); }

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }
  void Release();

 private:
  friend class ZeroEngine;
  ZeroEngine* engine_ = nullptr;
  Lane* lane_ = nullptr;
  int32_t lease_ = -1;
  std::byte* data_ = nullptr;
  Bytes size_;
};

// While it lives, accesses are neither traced nor counted as divergence, and
// gradients are refused. Move-only.
class EvaluateScope {
 public:
  EvaluateScope() = default;
  EvaluateScope(EvaluateScope&& other) noexcept;
  EvaluateScope& operator=(EvaluateScope&& other) noexcept;
  ~EvaluateScope() { End(); }
  void End();

 private:
  friend class ZeroEngine;
  ZeroEngine* engine_ = nullptr;
};

struct StepResult {
  int64_t step = 0;
  // Global norm of the averaged gradient, before clipping; 0 when clip_norm is
  // 0 (it is not computed then).
  double grad_norm = 0;
  double clip_factor = 1;
  // False when a gradient was infinite or not a number: nothing was updated.
  // Found by the norm, so true when clip_norm is 0, and such a gradient
  // spreads.
  bool applied = true;
};

struct TierUse {
  Bytes budget;
  Bytes in_use;
  Bytes peak;
};

struct EngineStats {
  TierUse tiers[3];  // by TierIndex
  // Bytes moved between tiers since Seal, [from][to].
  Bytes moved[3][3];
  Bytes most_nvme_written;  // in any one step: what wears the drives
  Bytes wire_sent;          // to other ranks, by all that the communicator did
  int64_t gathers = 0;      // slots filled; loads, where the home is whole
  int64_t prefetched_gathers = 0;
  int64_t cancelled_gathers = 0;  // of these, taken back before they began
  int64_t reduce_scatters = 0;    // one rank makes none
  int64_t releases = 0;
  int64_t divergences = 0;
  int64_t stall_ns = 0;  // compute lanes waited for chunks
  int64_t stalls = 0;
  int64_t tier_allocations = 0;  // slabs and files made since the start
  // Copies between device buffers before or after a collective. One rank, which
  // has none, copies a gradient to its home on the device.
  Bytes engine_copies;
  int64_t gathered_slots = 0;
  int64_t chunks = 0;
  int64_t chunk_sizes = 0;  // distinct ones in bytes, oversize chunks aside
  Bytes chunk_bytes;        // the largest of these
  Bytes home_bytes[3];      // of states at home, by tier
  Bytes state_bytes[kStateKinds][3];  // of these, of each state
};

// What Park leaves behind.
struct ParkResult {
  Bytes moved;      // of states, to the tier, by this call
  Bytes remaining;  // of states, still on the device: the tier has no room
  // Device memory that is held now: 0 when nothing remains, else all of what
  // was allocated at Seal, which only goes as a whole.
  Bytes held;
  // What remains and what would make room for it; empty when nothing does.
  std::string shortfall;
};

class ZeroEngine {
 public:
  // `communicator` must outlive the engine. InvalidArgument where options have
  // no meaning. Takes no memory of any tier.
  static Result<std::unique_ptr<ZeroEngine>> Create(const ZeroOptions& options,
                                                    Communicator* communicator);
  // Waits for background work, gives everything back; failures are logged. Use
  // Close to learn of them: without it, other ranks' engines end in an error.
  ~ZeroEngine();

  // Registers a parameter, in initialization order. kF32 and kBF16; bf16
  // parameters get fp32 master weights. A tied parameter is registered once and
  // its id used twice. FailedPrecondition after Seal.
  Result<ParamId> Register(ParamSpec spec, Initializer initializer);

  // Fixes the layout, places every state, allocates all memory, initialises.
  // Blocks until all ranks have; if one fails, all do. Infeasible, with the
  // smallest change that fits, when the budgets cannot serve what was declared;
  // InvalidArgument, with the first difference, when a layout was given that is
  // not of the parameters registered or for another number of ranks. After a
  // failure nothing is left behind and the engine is closed.
  Status Seal(const SealOptions& options);

  // `last`: no other micro-batch follows before Step (the norm is then computed
  // while the gradients are at hand). A micro-batch ends with the next one's
  // begin or with Step: gradients opened by then count as complete, others of
  // the same chunk as zero.
  Status BeginMicroBatch(bool last);

  // The parameters' current values on the device, for work on `lane`. Does not
  // block the host, except that a ThreadLane waits. Infeasible, naming the
  // chunks held, when the step holds more at once than there are slots.
  Result<ParamLease> Acquire(std::span<const ParamId> params, Lane& lane);

  // Where to add the parameter's gradient of this micro-batch: contiguous, in
  // the parameter's dtype, zero at the first call of a micro-batch, writable by
  // work on `lane` until GradReady. May be called several times, for several
  // lanes, which the trainer orders. Null for a parameter of size zero. Does
  // not block, except that a ThreadLane waits. Infeasible as Acquire.
  Result<void*> Grad(ParamId param, Lane& lane);
  // The gradient is complete once `lane` gets here. When all gradients of its
  // chunk are, the chunk is reduced. Does not block.
  Status GradReady(ParamId param, Lane& lane);

  // Borrows device memory for work on `lane`, which lives until the lease ends.
  // TierFull when more would be on lease than was declared. Does not block,
  // except that a ThreadLane waits.
  Result<MemoryLease> Borrow(Bytes size, Lane& lane);

  // Reduces what is left, averages over ranks and micro-batches, clips,
  // updates. `lr` for this step. Blocks until the gradients of all ranks are
  // there and the ranks agree on the norm and on the parameters that had any;
  // updates go on in the background and are waited for by whoever needs their
  // results. A parameter for which no rank had a gradient stays as it is.
  Result<StepResult> Step(double lr);

  Result<EvaluateScope> Evaluate();

  // Drops a half-done step, its gradients and micro-batches. Parameters stay as
  // they were before the step. Every rank must call it, at the same place of
  // the step. Blocks. FailedPrecondition while a lease or an EvaluateScope
  // lives.
  Status Abandon();

  // Whole values of one parameter in fp32 (masters where there are any),
  // gathered from all ranks. Blocks. REQUIRES: `out` has the parameter's size.
  Status ReadParam(ParamId param, std::span<float> out);

  // A digest of all weights (masters where there are any), equal for equal bits
  // whatever the layout, placement, stage or number of ranks: the sum, in 64
  // bits, of the XXH3 of every block of 64 fp32 values of a parameter, seeded
  // with parameter << 40 ^ number of the block. Blocks.
  Result<uint64_t> WeightDigest();

  // Empties the device between steps, so that others may use it: copies are
  // dropped, states at home there move to `to`, as far as its budget goes, and
  // when nothing remains the device's memory is given back. May be called
  // again, with another tier, for what remains. ReadParam and WeightDigest
  // serve while parked; everything else waits for Resume. Blocks.
  // FailedPrecondition inside a step and while a lease or an EvaluateScope
  // lives; Unavailable when the machine has not the memory, or the drive not
  // the space, that the budget allows: then nothing has moved.
  Result<ParkResult> Park(Tier to);
  // Brings everything back: training goes on with the same bits. Blocks.
  // Unavailable, and to be tried again, while the device has no room.
  Status Resume();

  // Waits for background work and for work on what the trainer gave back, and
  // returns the first failure; the engine can only be destroyed after it.
  // FailedPrecondition while a lease or an EvaluateScope lives.
  Status Close();

  // REQUIRES: sealed.
  const ChunkLayout& layout() const;
  EngineStats stats() const;
  // The step that was ended last, as the next one is planned by: to be written
  // to a file, planned anew and replayed elsewhere. Alike on all ranks, but for
  // what it says of the rank. Without accesses before the first step and after
  // Close, and without names where parameters share one. REQUIRES: sealed.
  TraceFile RecordedTrace() const;
  // Why a state of a chunk is at home where it is: the rule and the parameter
  // for which it holds, the limits, or the budgets. REQUIRES: sealed, and not
  // closed; the chunk has the state.
  std::string ExplainHome(ChunkId chunk, StateKind state) const;
  // The same of each state that a rule placed, by chunk, then by state.
  std::vector<std::string> PlacedByRules() const;
  int rank() const;
  int world() const;

 private:
  friend class MemoryLease;
  friend class EvaluateScope;
  class Impl;
  explicit ZeroEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ZERO_ENGINE_H_
