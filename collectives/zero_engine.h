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
// are told so by an error. Gradients need not agree: a rank may have none of a
// parameter of which others have one, and counts as zeros. Ranks that keep
// whole parameters (stages 0 to 2) need not acquire it either. Until the flush
// a chunk that waits for a missing one holds its slot. A trainer that may lack
// gradients declares so at Seal: as the last moment, all gradients together and
// no parameters. At stage 3 the first step, and one that departs from it, then
// reduce all gradients at the flush; the other steps follow the recorded one,
// and no chunk is updated early. A rank acquires the parameters of gradients
// that it lacks as others do. A gradient that is handed back later than
// recorded is an error where only some ranks are late; GradMode::kReuse needs a
// slot for every chunk. ReadGrad and WriteGrad inside a step are for ranks that
// have the same gradients so far.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/communicator.h"
#include "collectives/custom_update.h"
#include "collectives/engine_results.h"
#include "collectives/loss_scaler.h"
#include "collectives/zero_options.h"
#include "offload/lane.h"
#include "offload/memory_manager.h"
#include "placement/run_event.h"

namespace castor {

class ZeroEngine;
namespace internal {
class ParamLeases;  // collectives/engine/params/param_leases.h
}  // namespace internal
struct TraceFile;  // placement/trace/trace_file.h

// Writes the initial values of elements [begin, end) of one parameter to `out`,
// in fp32: whatever can be called so and returns nothing, or a Status. Called
// by Seal, for the ranges this rank owns, in any order and more than once, so a
// value may depend on (parameter, element) only. A failure fails Seal, on every
// rank. Without one, all values are zero.
class Initializer {
 public:
  Initializer() = default;
  Initializer(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  template <typename Fill>
  requires(std::is_invocable_v<Fill&, int64_t, int64_t, float*> &&
           !std::is_same_v<Fill, Initializer>)
      Initializer(Fill fill) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_void_v<
                      std::invoke_result_t<Fill&, int64_t, int64_t, float*>>) {
      std::function<void(int64_t, int64_t, float*)> plain(std::move(fill));
      if (!plain) return;
      fill_ = [plain = std::move(plain)](int64_t begin, int64_t end,
                                         float* out) {
        plain(begin, end, out);
        return OkStatus();
      };
    } else {
      fill_ = std::move(fill);
    }
  }

  explicit operator bool() const { return static_cast<bool>(fill_); }
  // REQUIRES: there is one.
  Status operator()(int64_t begin, int64_t end, float* out) const {
    return fill_(begin, end, out);
  }

 private:
  std::function<Status(int64_t begin, int64_t end, float* out)> fill_;
};

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
  // The bits of bf16 and of fp16.
  const uint16_t* bf16(size_t i) const {
    return static_cast<const uint16_t*>(data(i));
  }
  const uint16_t* f16(size_t i) const {
    return static_cast<const uint16_t*>(data(i));
  }
  // Work on this lane reads them too: the release comes behind it as well.
  void AlsoUsedOn(Lane& lane);
  void Release() {
    if (held_ != nullptr) GiveBack();
  }

 private:
  friend class internal::ParamLeases;
  class Lender;
  // Lent by the engine, which lends it again: in steady state nothing is
  // allocated.
  struct Held {
    std::vector<ChunkPin> pins;
    std::vector<const void*> data;
    // How often each is held, where that matters (GradMode::kReuse).
    std::vector<int32_t*> counts;
    // With ZeroOptions::poison: the lanes that read copies, and who fills these
    // copies with NaN behind the lanes.
    std::vector<Lane*> lanes;
    std::function<void(std::span<Lane* const>)> poison;
    Lender* lender = nullptr;
  };
  // The engine, which a lease goes back to.
  class Lender {
   public:
    virtual ~Lender() = default;
    virtual void TakeBack(Held* held) = 0;
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
  // As ParamLease's.
  void AlsoUsedOn(Lane& lane);
  void Release();

 private:
  friend class ZeroEngine;
  ZeroEngine* engine_ = nullptr;
  std::vector<Lane*> lanes_;  // the first is the one that it is for
  int32_t lease_ = -1;
  std::byte* data_ = nullptr;
  Bytes size_;
};

// While it lives, accesses are neither traced nor counted as divergence, and
// gradients are refused. FailedPrecondition between the first gradient that is
// written over a parameter (GradMode::kReuse) and Step. Move-only.
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

class ZeroEngine {
 public:
  // `communicator` must outlive the engine. InvalidArgument where options have
  // no meaning. Takes no memory of any tier.
  static Result<std::unique_ptr<ZeroEngine>> Create(const ZeroOptions& options,
                                                    Communicator* communicator);
  // Waits for background work, gives everything back; failures are logged. Use
  // Close to learn of them: without it, sealed or not, other ranks' engines end
  // in an error.
  ~ZeroEngine();

  // Registers a parameter, in initialization order. kF32, kBF16 and kF16; the
  // last two get fp32 master weights. A frozen one may be kU8: bytes of
  // whatever a trainer has quantized, which go through Initializer, ReadParam
  // and the digest as 0.0 to 255.0. A tied parameter is registered once and its
  // id used twice. `group`: whose hyper-parameters it has, of
  // ZeroOptions::groups; empty: those of all. InvalidArgument where there is no
  // such group; on other ranks, Seal then fails. FailedPrecondition after Seal.
  Result<ParamId> Register(ParamSpec spec, Initializer initializer,
                           std::string_view group = {});

  // Fixes the layout, places every state, allocates all memory, initialises.
  // Blocks until all ranks have; if one fails, all do. Infeasible, with the
  // smallest change that fits, when the budgets cannot serve what was declared;
  // InvalidArgument, with the first difference, when a layout was given that is
  // not of the parameters registered or for another number of ranks. After a
  // failure nothing is left behind and the engine is closed.
  Status Seal(const SealOptions& options);

  // `last`: no other micro-batch follows before Step, as far as is known: the
  // norm is then computed while the gradients are at hand, and anew where
  // another follows. FailedPrecondition where one follows after UpdateEarly or
  // ClipGradients. A micro-batch ends with the next one's
  // begin or with Step: gradients opened by then count as complete, others of
  // the same chunk as zero.
  Status BeginMicroBatch(bool last);

  // The parameters' current values on the device, for work on `lane`. Does not
  // block the host, except that a ThreadLane waits. Infeasible, naming the
  // chunks held, when the step holds more at once than there are slots;
  // FailedPrecondition where a gradient is written over a parameter.
  Result<ParamLease> Acquire(std::span<const ParamId> params, Lane& lane);

  // Where to add the parameter's gradient of this micro-batch: contiguous, in
  // the parameter's dtype (kF32 with GradMode::kFp32), zero at the first call
  // of a micro-batch (with AccumulationOrder::kLast, of a step: what is there
  // is the sum so far), writable by work on `lane` until GradReady. May be
  // called several times, for several lanes, which the trainer orders. Null for
  // a parameter of size zero. Does not block, except that a ThreadLane waits.
  // Infeasible as Acquire. With GradMode::kReuse it is where the parameter was,
  // which is lost with the first call: FailedPrecondition while it is on lease.
  Result<void*> Grad(ParamId param, Lane& lane);
  // The gradient is complete once `lane` gets here. When all gradients of its
  // chunk are, the chunk is reduced. Does not block.
  Status GradReady(ParamId param, Lane& lane);

  // Leaves the gradients of these parameters where they are, grads[i] that of
  // params[i]: contiguous, in device memory, at a multiple of 64 bytes,
  // complete once `lane` gets here. The engine reads the gradients, and may
  // write to them, until Step or Abandon returns and the lane that the trainer
  // reads parameters on gets there. One gradient a parameter and step: the
  // trainer adds up. Does not block. FailedPrecondition where the engine does
  // not borrow.
  Status BorrowGrads(std::span<const ParamId> params,
                     std::span<std::byte* const> grads, Lane& lane);
  // Whether it does (ZeroOptions::borrow_grads); Grad is refused then.
  bool borrows_grads() const;

  // Borrows device memory for work on `lane`, which lives until the lease ends.
  // TierFull when more would be on lease than was declared. Does not block,
  // except that a ThreadLane waits.
  Result<MemoryLease> Borrow(Bytes size, Lane& lane);

  // Reduces what is left, averages over ranks and micro-batches, undoes the
  // loss scale, clips, updates. `lr` for this step, of all groups without a
  // rate of their own. Blocks until the gradients of all ranks are there and
  // the ranks agree on the norm and on the parameters that had any; updates go
  // on in the background and are waited for by whoever needs their results:
  // whoever reads by a lease that outlives the step waits for what it gives. A
  // parameter for which no rank had a gradient stays as it is; where a gradient
  // of any rank overflowed, all do, with their moments and counts.
  Result<StepResult> Step(double lr);

  // Step, WriteParam, WriteBack and Load write parameters that are on lease now
  // behind `reads`: the end of what is queued on lanes and reads them. For
  // leases that are open at that call, on lanes that do not wait at once. Does
  // not block.
  void WriteBehind(const Event& reads);

  // Says that this step's rate is `lr`, so that updates need not wait for Step.
  // A chunk is then updated in the background once all its gradients of the
  // last micro-batch are reduced. One waits for Step where a parameter of it
  // has no gradient, or is on lease where the update writes. The chunk's
  // parameters cannot be acquired from there to Step, nor the step be abandoned
  // (FailedPrecondition). Same bits. Does not block. FailedPrecondition outside
  // a step, and with clipping or loss scaling, for which all gradients have to
  // be known first.
  Status UpdateEarly(double lr);
  // Lets updates in host memory begin before Step, beside the old states, with
  // the guess that Step has this rate and neither clips nor skips the step. A
  // guess that is right is taken at Step, any other dropped: same bits, and
  // until Step nobody sees new values. Nothing is guessed where budgets leave
  // no room (ZeroOptions::guess_updates). To be called in each step.
  Status GuessUpdates(double lr);

  // What updates parameters where the options' optimizer is custom: before the
  // first step, and again where it changes. Step then returns when all of its
  // calls have. On one rank, where the first call fails as FailedPrecondition,
  // Step fails with its words, drops the gradients and changes nothing. After
  // any other failure the engine cannot go on. FailedPrecondition where the
  // optimizer is another, and inside a step.
  Status SetUpdate(UpdateFunction update);

  // From the next Step on, the group's learning rate, whatever that is given;
  // the empty name is of what is in no group. Checkpoints keep it.
  // InvalidArgument where there is no such group, or the rate has no meaning;
  // FailedPrecondition between UpdateEarly and Step.
  Status SetLearningRate(std::string_view group, double lr);

  // Other numbers of a group, from the next Step on, likewise. Checkpoints do
  // not keep them. InvalidArgument, with nothing changed, where the optimizer
  // is undefined for them; FailedPrecondition as SetLearningRate.
  Status SetHyperParameters(std::string_view group,
                            const HyperParameters& numbers);

  // Reduces what is left, as Step does, and returns the global norm of the
  // averaged gradient without the loss scale; Step then clips it to `max_norm`,
  // whatever options say. After the last micro-batch's last gradient. Blocks.
  // FailedPrecondition where no norm is counted (ZeroOptions::count_norm), or
  // a micro-batch may still come; InvalidArgument where max_norm has no
  // meaning.
  Result<double> ClipGradients(double max_norm);

  // What the trainer multiplies the loss of this step's micro-batches by before
  // it goes backward; 1 where options ask for no scaling. Changes in Step only.
  double LossScale() const;
  // For checkpoints. Restoring is FailedPrecondition inside a step and
  // InvalidArgument where a run of these options never has such a state.
  const LossScaleState& loss_scale_state() const;
  Status RestoreLossScale(const LossScaleState& state);

  Result<EvaluateScope> Evaluate();

  // Drops a half-done step, its gradients and micro-batches. Parameters stay as
  // they were before the step. Every rank must call it, at the same place of
  // the step. Blocks. FailedPrecondition while a lease or an EvaluateScope
  // lives, and where UpdateEarly has had something updated.
  Status Abandon();

  // In the place of each word the least that any rank has: what a trainer's
  // ranks agree by. All ranks call it with as many. Blocks.
  Status LeastOfRanks(std::span<int64_t> words);

  // Whole values of one parameter in fp32 (masters where there are any),
  // gathered from all ranks. Blocks. REQUIRES: `out` has the parameter's size.
  Status ReadParam(ParamId param, std::span<float> out);

  // Gives the parameter these values, rounded where it is kept in low precision
  // and exact in its master; moments and counts stay. Blocks.
  // FailedPrecondition inside a step and while a lease or an EvaluateScope
  // lives; InvalidArgument where ranks give different values. REQUIRES: as
  // ReadParam.
  Status WriteParam(ParamId param, std::span<const float> values);

  // New values of several parameters, as somebody left them who has seen the
  // parameters' own type: an element that is equal in that type keeps its
  // master. Also inside a step, whose gradients stay; leases keep the memory
  // that they have, with the old values. All ranks call it with the same, and
  // with none where nothing was written: where ranks differ all get
  // InvalidArgument, which names a parameter. Blocks. FailedPrecondition as
  // WriteParam's but for steps, and where UpdateEarly has updated one.
  struct ParamValues {
    ParamId param;
    std::span<const float> values;  // as many as the parameter has
  };
  Status WriteBack(std::span<const ParamValues> written);

  // The parameter's gradient in fp32 as this step has it so far: averaged over
  // ranks and micro-batches and without the loss scale, as Step averages it,
  // but not clipped. Zeros where there is none. Blocks. FailedPrecondition
  // outside a step, and while the gradient of its chunk waits to be reduced:
  // until all of the chunk's parameters have theirs handed back, in the last
  // micro-batch with AccumulationOrder::kLast. REQUIRES: as ReadParam.
  Status ReadGrad(ParamId param, std::span<float> out);

  // Gives the gradient these values, as ReadGrad has them, rounded to the type
  // it is kept in; the norm and the update are of them. Blocks.
  // FailedPrecondition where ReadGrad fails, where the parameter's chunk has no
  // gradient in this step, and where UpdateEarly has had it updated;
  // InvalidArgument where ranks give different values. The parameter has a
  // gradient from then on. REQUIRES: as ReadParam.
  Status WriteGrad(ParamId param, std::span<const float> values);

  // Reduces what is left, as Step does, so that every gradient can be read and
  // written: one that was not handed back yet is complete, or zero. Another
  // micro-batch may follow. Every rank must call it, at the same place of the
  // step. Blocks. FailedPrecondition outside a step.
  Status FinishGradients();

  // As if the parameter had no gradient in this step: the update leaves it
  // alone, and the norm is without it. Every rank must call it. Blocks.
  // FailedPrecondition as WriteGrad.
  Status DropGradient(ParamId param);

  // A moment of the parameter in fp32, OptimizerState(i), as ReadParam and
  // WriteParam. InvalidArgument where the parameter has no such state.
  Status ReadState(ParamId param, StateKind state, std::span<float> out);
  Status WriteState(ParamId param, StateKind state,
                    std::span<const float> values);
  // How often the parameter was updated, of which bias corrections are made.
  Result<int64_t> UpdateCount(ParamId param) const;
  // FailedPrecondition inside a step; InvalidArgument where ranks give
  // different counts, or one below 0. Blocks.
  Status SetUpdateCount(ParamId param, int64_t count);

  // The parameter of that name, the first where several have it.
  // InvalidArgument where none has.
  Result<ParamId> Find(std::string_view name) const;

  // A digest of all weights (masters where there are any), equal for equal bits
  // whatever the layout, placement, stage or number of ranks: the sum, in 64
  // bits, of the XXH3 of every block of 64 fp32 values of a parameter, seeded
  // with parameter << 40 ^ number of the block. Blocks.
  Result<uint64_t> WeightDigest();

  // Writes all states, the step and the trainer's bytes to a checkpoint of the
  // step made last: safetensors files of whole tensors, weights under the
  // parameters' own names, fp32 masters and moments beside them, with digests
  // (checkpoint/checkpoint_manifest.h). Every rank writes the elements it
  // counts, shard by shard: it takes a shard's memory besides the budgets. The
  // files of a model are the same bytes whatever the ranks, stage, chunks and
  // homes. Blocks until it is on the drive and bears its name; until then the
  // one before is untouched, also when the process dies. Serves while parked.
  //
  // FailedPrecondition inside a step and while a lease or an EvaluateScope
  // lives; InvalidArgument where options or names have no meaning; Unavailable
  // while another run saves there, or where the system gives no thread to a
  // save that does not wait; IoError where the system refuses. The same on
  // every rank, and training may go on. A failed save leaves nothing behind,
  // but for one case, which its message names: the new checkpoint is in place,
  // and the folder's names could not be put on the drive. Then all that was
  // there before stays too.
  // SaveOptions::wait says until when it blocks; without, the result tells
  // where the checkpoint will be.
  Result<SaveResult> Save(const SaveOptions& options);
  // What became of the last Save that did not wait; waits for it if need be.
  // Once each; FailedPrecondition where there was none. Blocks.
  Result<SaveResult> FinishSave();

  // Takes all states and the step from a checkpoint, saved by any number of
  // ranks, in any stage, layout and homes: training goes on with the bits that
  // it would have had. Parameters are found by name. Takes a shard's memory
  // besides the budgets. Blocks.
  //
  // InvalidArgument, with nothing changed, where there is no such checkpoint,
  // or it is of another model or optimizer: the message names parameter,
  // shapes and types; Malformed where its files are incomplete, DataLoss where
  // they are not what was saved, FailedPrecondition as Save. The same on every
  // rank. A failure once states are being replaced ends the engine.
  Result<LoadResult> Load(const LoadOptions& options);

  // Places every state anew, under other budgets and for another working set:
  // training goes on with the same bits. Chunks stay as they are. The step that
  // follows is recorded anew, and counts of `stats` begin anew. Blocks until
  // all ranks have; budgets may differ among them.
  //
  // Host memory, and a simulated device's, never hold more than the larger of
  // the old and the new, a chunk and staging. A device that was given, or whose
  // memory somebody makes, is parked meanwhile, so that its old memory is gone
  // before it makes the new; where host memory and NVMe have no room for that,
  // it holds both. Drives hold both files for a moment.
  //
  // Infeasible and Unavailable, with nothing changed, where the budgets or the
  // machine cannot hold it; where a device does not even give the old memory
  // again, the engine stays parked, as the message says, until Resume can.
  // FailedPrecondition inside a step, while parked, and
  // while a lease or an EvaluateScope lives.
  Status Reseal(const ResealOptions& options);

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
  // FailedPrecondition while a lease or an EvaluateScope lives, or a save is
  // under way.
  Status Close();

  // REQUIRES: sealed.
  const ChunkLayout& layout() const;
  // By which states are told of everywhere: what the optimizer keeps.
  const StateNames& state_names() const;
  EngineStats stats() const;
  // The step that was ended last, as the next one is planned by: to be written
  // to a file, planned anew and replayed elsewhere. Alike on all ranks, but for
  // what it says of the rank. Without accesses before the first step and after
  // Close, and without names where parameters share one. REQUIRES: sealed.
  TraceFile RecordedTrace() const;
  // Puts a mark into the run's record, of now; nothing where there is none.
  // REQUIRES: at most kMostMarkBytes.
  void Mark(std::string_view words) const;
  // Where a parameter's state is at home; none where there is no such state.
  // REQUIRES: sealed, and not closed.
  std::optional<Tier> Home(ParamId param, StateKind state) const;
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
  struct Parts;  // collectives/engine/zero_engine_parts.h
  explicit ZeroEngine(std::unique_ptr<Parts> parts);
  // All of Step but what it requires.
  Result<StepResult> MakeStep(double lr);
  // The ends of a MemoryLease and of an EvaluateScope.
  void Return(int32_t lease, std::span<Lane* const> used_on);
  void EndEvaluation();

  const std::unique_ptr<Parts> parts_;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ZERO_ENGINE_H_
