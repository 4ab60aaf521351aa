// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_IMPL_H_
#define CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_IMPL_H_

// The inside of ZeroEngine, for the .cc files that implement it, all named
// zero_engine_*.cc.
//
//   before training   life (health, end), seal (agreement, layout, homes),
//                     memory (pools, slots), start (initial values).
//   in a step         params (gathers, leases), grads (gradients, reduction),
//                     reuse (gradients written over parameters).
//   at its end        deposit (the way of a reduced gradient to its home), norm
//                     (sums of squares), step (agreement), update (the
//                     optimizer). All but step work by passes (where states
//                     live). Turns and waiting: ranks that lack gradients.
//   between steps     values (read, written, their digest), write_back (what
//                     the trainer changed), save and load (checkpoints), park
//                     (an empty device), reseal (other budgets).
//   always            record (events).
//
// Device memory is touched by operations of the device only, on its own lanes
// and the trainer's. The one exception is a communicator that needs memory
// which the host addresses: Seal refuses it on a device that has none.
//
// Background work is queued on lanes and ordered by events, always on events of
// work queued earlier; ranks queue collectives in the same order. So there is
// no cycle to wait in. Everything here is touched by the owner thread only,
// except what a lane's work captures.

#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/layout/chunk_state.h"
#include "collectives/checkpoint/checkpoint_plan.h"
#include "collectives/checkpoint/folder_hold.h"
#include "collectives/custom_update.h"
#include "collectives/engine/lease_copies.h"
#include "collectives/engine/update_work.h"
#include "collectives/engine/zero_engine_parts.h"
#include "collectives/loss_scaler.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "collectives/optimizer_groups.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/world/rank_agreement.h"
#include "collectives/zero_engine.h"
#include "offload/device.h"
#include "offload/host_passes.h"
#include "offload/kernels/exact_sum.h"
#include "offload/lane.h"
#include "offload/memory/lease_arena.h"
#include "offload/memory/slab.h"
#include "offload/memory_manager.h"
#include "offload/shards/rank_pools.h"
#include "offload/shards/shard_store.h"
#include "offload/worker_pool.h"
#include "placement/homes/homes_file.h"
#include "placement/step_traffic.h"
#include "placement/trace/reduction_turns.h"

namespace castor {

class ZeroEngine::Impl final : public ChunkSource, public ParamLease::Lender {
 public:
  Impl(const ZeroOptions& options, Communicator* communicator);
  ~Impl() override;

  Result<ParamId> Register(ParamSpec spec, Initializer initializer,
                           std::string_view group);
  Result<ParamId> AddParam(ParamSpec spec, Initializer initializer,
                           std::string_view group);
  Status Seal(const SealOptions& declared);
  Status BeginMicroBatch(bool last);
  Result<ParamLease> Acquire(std::span<const ParamId> params, Lane& lane);
  Result<void*> Grad(ParamId param, Lane& lane);
  Status GradReady(ParamId param, Lane& lane);
  Result<StepResult> Step(double lr);
  void WriteBehind(const Event& reads);
  Status UpdateEarly(double lr);
  Status SetUpdate(UpdateFunction update);
  Status Abandon();
  Status SetLearningRate(std::string_view group, double lr);
  Status SetHyperParameters(std::string_view group,
                            const HyperParameters& numbers);
  Result<double> ClipGradients(double max_norm);
  const LossScaler& scaler() const { return scaler_; }
  Status RestoreLossScale(const LossScaleState& state);
  Status ReadParam(ParamId param, std::span<float> out);
  Status WriteParam(ParamId param, std::span<const float> values);
  Status AgreeBy(std::span<int64_t> words);
  Status WriteBack(std::span<const ParamValues> written);
  Status ReadGrad(ParamId param, std::span<float> out);
  Status WriteGrad(ParamId param, std::span<const float> values);
  Status FinishGradients();
  Status DropGradient(ParamId param);
  Status OverwriteGrad(ParamId param, std::span<const float> values);
  Status ReadMoment(ParamId param, StateKind state, std::span<float> out);
  Status WriteMoment(ParamId param, StateKind state,
                     std::span<const float> values);
  Result<int64_t> UpdateCount(ParamId param) const;
  Status SetUpdateCount(ParamId param, int64_t count);
  Result<ParamId> Find(std::string_view name) const;
  Result<uint64_t> WeightDigest();
  Result<SaveResult> Save(const SaveOptions& options);
  Result<SaveResult> FinishSave();
  Result<LoadResult> Load(const LoadOptions& options);
  Status Reseal(const ResealOptions& asked);
  Result<ParkResult> Park(Tier to);
  Status Resume();
  Status Close();
  EngineStats stats() const;
  TraceFile RecordedTrace() const;
  void Mark(std::string_view words) const;
  // A Status, or a Result, as it is told: a failure names parameters where it
  // has the numbers of chunks.
  template <typename T>
  T Told(T answer) const {
    if (answer.ok()) [[likely]] {
      return answer;
    }
    if constexpr (std::is_same_v<T, Status>) {
      return WithNames(answer);
    } else {
      return WithNames(answer.status());
    }
  }
  std::optional<Tier> Home(ParamId param, StateKind state) const;
  std::string ExplainHome(ChunkId chunk, StateKind state) const;
  std::vector<std::string> PlacedByRules() const;

  Result<LeaseArena::Lease> Borrow(Bytes size, Lane& lane);
  void Return(int32_t lease, std::span<Lane* const> lanes);
  Status BeginEvaluation();
  void EndEvaluation();

  const ChunkLayout& layout() const { return *layout_; }
  const StateNames& state_names() const { return sharding_.states; }
  Communicator* communicator() const { return comm_; }

  // ChunkSource.
  Event Gather(ChunkId chunk, const Slot& slot, RunCause cause,
               int64_t moment) override;
  Event FetchShard(ChunkId chunk, std::byte* to, const Event& after,
                   RunCause cause) override;
  Event GatherFrom(const std::byte* shard, const Event& ready, ChunkId chunk,
                   const Slot& slot, RunCause cause, int64_t moment) override;
  std::byte* DirectData(ChunkId chunk) override;
  Event DirectReady(ChunkId chunk) override;
  void DirectUsed(ChunkId chunk, Event last_use) override;
  bool Cancellable(ChunkId chunk) const override;
  bool Cancel(ChunkId chunk) override;
  void Raise(ChunkId chunk) override;
  // As a rank that keeps whole parameters does.
  bool DecidesAlone() const override {
    return sharding_.replicated(StateKind::kParam);
  }
  Status LeastOfRanks(std::span<int64_t> words) override {
    return DecidesAlone() ? OkStatus() : LeastOf(words, "uses that ended");
  }
  void Failed(const Status& status) override { Fail(status).IgnoreError(); }

  // ParamLease::Lender.
  void TakeBack(ParamLease::Held* held) override;

 private:
  enum class Phase : uint8_t { kOpen, kSealed, kClosed };

  // Puts copies in place of what the lease has (ZeroOptions::poison).
  Status CopyForLease(std::span<const ParamId> params, Lane& lane,
                      ParamLease::Held& held);

  // Of a Position, for what happens between two accesses.
  static constexpr int kPositionBits = 24;

  // The first failure of background work, shared with the lanes' callbacks.
  struct Failure {
    std::atomic<bool> failed{false};
    std::mutex mutex;
    Status status;  // guarded by mutex
  };

  using Param = internal::EngineParam;
  using ChunkGrad = internal::ChunkGrad;
  using LeaseCopies = internal::LeaseCopies;
  using Segment = internal::Segment;
  using ParkedShard = internal::ParkedShard;
  using ParkPlan = internal::ParkPlan;

  Lane::OnFailure FailureCallback() const;
  Status Health() const;
  // Ends the world with a failure that no lane has seen; returns the first one.
  Status Fail(const Status& status);
  // Waits for background work and gives everything back but the slabs.
  Status ShutDown();
  // Sealed, and the states are at hand: perhaps parked.
  Status RequireStates() const;
  // And not parked.
  Status RequireSealed() const;
  // No parameters held and no evaluation under way. `call`: what asks for it.
  Status RequireNothingOpen(std::string_view call) const;
  // Nothing of the engine's memory is lent.
  Status RequireNoLeases(std::string_view call) const;
  // Nor a step begun.
  Status RequireBetweenSteps(std::string_view call) const;
  std::string Name(ParamId param) const;

  // save, load
  class Saving;
  class Loading;
  // Waits for a save that is under way; what became of it is kept.
  Status EndSave();
  // Takes one further as far as all ranks have come; waits for no drive.
  Status AdvanceSave();
  // What a checkpoint is of; a parameter without elements has values alone.
  std::vector<ParamWithStates> ParamsWithStates() const;
  // As internal::AgreeOn and internal::SumOverRanks.
  Status AgreeOn(const Status& own, uint64_t same, std::string_view purpose) {
    return internal::AgreeOn(*comm_, *comm_lane_, own, same, purpose);
  }
  // Each word becomes the least that any rank has in its place.
  Status LeastOf(std::span<int64_t> words, std::string_view purpose);
  Status SumOverRanks(std::span<uint64_t> sums, std::string_view purpose) {
    return internal::SumOverRanks(*comm_, *comm_lane_, sums, purpose);
  }

  // reseal
  struct Memory;
  // What the last step held, where nothing is declared and ranks know the same.
  Status DeclareLastStep(SealOptions* declared);
  // This engine's memory for the other.
  void ExchangeMemory(Memory& other);
  // The bytes on a device that was given go to other tiers, if the tiers have
  // room for all: then the device's memory is free. Else nothing moves, and
  // `why` says what is short.
  Status LeaveDevice(std::string* why);
  // Takes the states that `from` has into the memory of this engine, shard by
  // shard, and gives the pages of each back behind it.
  Status TakeStates(Memory& from);
  // Whether the drive has room for that, shard by shard, where old and new
  // files have none beside each other.
  Status CheckDriveRoom(const Memory& from) const;

  // park
  ParkPlan PlanPark(Tier to) const;
  Status MakeRoom(Tier to, const ParkPlan& plan);
  Status DrainAll();

  // seal
  int64_t HashOfParams() const;
  // Hashes of what ranks have to choose alike, by name.
  std::vector<std::pair<std::string, int64_t>> OptionsOfAllRanks(
      const SealOptions& declared) const;
  static Status CheckMicroBatches(const SealOptions& declared);
  // Whether a step that is declared is one of these chunks and gradients.
  Status CheckStep(const SealOptions& declared) const;
  // Whether the communicator can work on the device's memory.
  Status CheckDevice() const;
  Status AgreeOnInputs(const SealOptions& declared);
  Status WaitForOthers();
  Status BuildLayout(const SealOptions& declared);
  Status InitializeShards();
  Status FillState(ChunkId chunk, StateKind state, std::byte* out) const;
  void DescribeRank() const;
  // Where states are at home from the next step on, and how full tiers are.
  void DescribeHomes() const;
  // The accesses of the step that ended, where they are others than before.
  void DescribeTrace();
  // REQUIRES: a recorder.
  void AddDocument(std::string text) const;
  std::vector<HomesOfChunk> Homes() const;
  Status WithNames(const Status& failure) const;

  // Where shards of a dry engine move whole: gives them staging slots as large,
  // which no budget counts.
  void WidenStaging();

  // homes
  // Finds what rules bind, alike on all ranks.
  Status BindHomes();
  std::vector<ParamSpec> Specs() const;

  // memory
  Result<MemoryPlan> PlanAllMemory(const SealOptions& declared) const;
  // An access that found no slot, with a raise of the device budget after which
  // none fails: all states live there, and everything may be held at once.
  Status WithEnough(const Status& failed) const;
  // `before`: whose states will come here (RankPoolsOptions).
  Status BuildMemory(const SealOptions& declared, const SlabComing& coming = {},
                     const RankPools* before = nullptr);
  Status BuildStore();
  // Waits until nobody uses the memory, and gives it back but for the slabs;
  // the first failure.
  Status CloseMemory();
  // Gives the slabs back. REQUIRES: CloseMemory was called, or nothing was
  // queued.
  void DropMemory();
  // The slots on the device that are no shard's and no chunk's: for leases and
  // for the norm. REQUIRES, to give them back: the lanes are drained.
  Status TakeOwnSlots();
  void GiveOwnSlotsBack();

  // params
  // Queues the all-gather of a chunk, whose shard is at `shard`, into a slot.
  Event GatherAround(const std::byte* shard, ChunkId chunk, const Slot& slot,
                     RunCause cause, int64_t moment);

  // grads
  // Whether a chunk whose gradients are handed back is reduced now.
  bool Reduces() const {
    return last_micro_batch_ ||
           options_.accumulation == AccumulationOrder::kEach;
  }
  // What `event` makes of the parameter's gradient; an error names it.
  Result<ParamState> NextParamState(ParamId param, ParamEvent event) const;
  void EndMicroBatch();
  // The power of two by which every rank divides its gradients before they are
  // added, so that a sum over ranks and micro-batches reaches no further than
  // their average.
  int HeadroomOfSums(const SealOptions& declared) const;
  // Reduces what is left of the micro-batch.
  Status FlushGrads();
  // `early`: gradients of it may come still.
  void ReduceChunk(ChunkId chunk, bool early = false);

  // What is written to it so far comes before it is reduced.
  static void WaitForWriters(ChunkGrad& grad) {
    for (Lane* lane : grad.lanes) grad.ready.push_back(lane->Record());
  }

  // turns
  void SetUpTurns(const SealOptions& declared);
  // The chunk's gradients are handed back: it is reduced when its turn comes.
  void Complete(ChunkId chunk);
  void ReduceInTurn();
  // As FlushGrads, in turn: zeros where this rank has no gradient.
  Status FlushTurns();
  // Finds whose gradients wait for the flush where there is no plan.
  void SetUpWaiting(const SealOptions& declared);
  // Where the step is not as planned, all reductions wait for the flush: ranks
  // then agree on them. Only where the trainer declares that it may be so.
  bool WaitsForFlush() const {
    return !waits_.empty() && !manager_->as_planned();
  }
  // Orders what happens to gradients among the accesses of the step.
  uint64_t Position() {
    return (uint64_t{manager_->trace().size()} << kPositionBits) + ++events_;
  }
  // As the manager's OpenGrad, not traced where it waits for the flush.
  Result<Slot> OpenSlot(ChunkId chunk);
  // Whether it is the next access to a gradient, before any use.
  bool PlannedNext(const Access& grad) const;
  // Reduces what waits, in the order of chunks, zeros where only others have
  // it. Puts the accesses that the step has when it is planned into the trace,
  // the same on all ranks.
  Status FlushWaiting();
  // These accesses, out of what ranks agreed on.
  std::vector<LateAccess> AccessesToInsert() const;
  // Opens the chunk's gradient, of which this rank has none: zeros.
  Status OpenZeros(ChunkId chunk);
  // Where parameters are sharded: makes the accesses to gradients that the plan
  // has before `until`, or before the next use, zeros where this rank has none.
  // Called before each use of a chunk and each end of one that is planned.
  // `flush`: nothing more is handed back in this micro-batch.
  void FollowPlan(std::optional<Access> until, bool flush);
  // Queues reductions that wait, so that their slots come free. False where
  // none waits.
  bool MakeRoom();

  // The reduced gradient of `range` goes from device memory at `from` to its
  // home. Returns when `from` may be reused.
  Event Deposit(ChunkId chunk, std::byte* from, const Event& reduced);

  // reuse
  bool grads_in_place() const { return options_.grad_mode == GradMode::kReuse; }
  Status RequireNotOverwritten(ParamId param) const;
  Status RequireOneMicroBatch(bool last) const;
  // Has `lane` make zero of a parameter that nobody uses any more.
  void BeginOverwriting(ParamId param, Lane& lane);
  // When nobody uses what is in the place of the chunk's gradient any more.
  Event PlaceUnused(ChunkId chunk);
  // Makes zero of what is in the place of gradients that nobody opened; when
  // that is done.
  Event ClearUnopened(ChunkId chunk);
  // The place is the home itself: what is written there is lost.
  bool LosesHome(ChunkId chunk) const {
    return grads_in_place() &&
           memory_.problem.param_class[chunk.index()] == kNoSlotClass;
  }
  // Takes parameters that were lost, and not updated, from their masters.
  void RestoreHome(ChunkId chunk);
  void RestoreLostHomes();

  // passes
  // Queues the pass in either place, behind all that it has to wait for.
  // Returns when what is passing may be reused.
  Event RunAtHome(internal::HomePass pass);
  Event RunOnDevice(internal::HomePass& pass);
  // `part`: within one piece of each state.
  Event RunOnHost(internal::HomePass& pass, ShardRange part);
  // An update begins on the lane: records and counts it. Null for other passes.
  std::shared_ptr<RunEvent> BeginUpdate(const internal::HomePass& pass,
                                        ShardRange part, Lane& lane);
  // Queues a pass over host memory that the chunk's states are in, of so many
  // bytes read and written.
  void QueuePass(ChunkId chunk, HostPass pass, Bytes traffic, Lane::Work work);

  // norm
  bool CountsNorm() const { return castor::CountsNorm(options_); }
  std::vector<ShardRange> CountedRuns(ChunkId chunk, ShardRange within) const;
  // Calls `add` for each run of `range` that this rank counts, whose gradient
  // begins at `data`: with the run's begin, and its elements.
  template <typename Add>
  void ForSquares(ChunkId chunk, ShardRange range, const std::byte* data,
                  const Add& add);
  // Adds the squares of these runs to the sum of the host; or queues that on
  // the device's lane, to the device's sum.
  void AddHostSquares(ChunkId chunk, ShardRange range, const std::byte* data);
  void AddDeviceSquares(ChunkId chunk, ShardRange range, const std::byte* data);
  // Queues that for the gradient at home.
  void CountSquares(ChunkId chunk);
  void CountLeftSquares();
  // Queues the way of the device's sum to `norm_words_`, and returns its end;
  // the sum begins anew.
  Event FetchDeviceSquares();
  // Both sums, once that is done; the host's begins anew.
  ExactSum TakeSquares();
  void ResetSquares();
  // What is in the norm cannot be taken out of it: Step counts all anew. Waits
  // for the host lane.
  Status CountAnew();
  // The first parameter whose reduced gradient is not finite. All ranks call
  // it, with the gradients of a step that none applies.
  Result<ParamId> FirstNotFinite();

  // step
  struct Agreement {
    double squares = 0;
    bool overflowed = false;
  };
  Result<Agreement> Agree(double lr);
  // The rest of the gradients is counted, and this rank's sum is in
  // `agreed_words_`: once the communicator's lane is there, or, of one rank
  // without streams, at once.
  Status AddUpOwnSquares();
  // What all ranks' sums make, in the first words of `agreed_words_`.
  Agreement TotalOfSquares() const;
  // A hash and its square, behind `agreed_words_`; whether what has been added
  // up at `at` is of equal ones.
  void PutHash(uint64_t hash);
  bool SameHash(size_t at) const;
  // `agreed_words_` of all ranks; blocks.
  Status AddUpAgreedWords();
  // Which parameters any rank had a gradient of, and in which order chunks are
  // reduced in the next step.
  Status AgreeOnGradients(std::vector<ChunkId>& order);
  // What gradients are multiplied by before they are clipped: undoes the loss
  // scale and averages over ranks and micro-batches.
  double AveragingFactor() const {
    return std::ldexp(
        1.0 / (static_cast<double>(comm_->world()) *
               static_cast<double>(
                   options_.average_micro_batches ? micro_batches_ : 1) *
               scaler_.scale()),
        headroom_);
  }
  // As the next forward comes to them. By number where ranks refresh copies,
  // which all call in one order.
  std::vector<ChunkId> UpdateOrder() const;
  // `passing` takes the place of the gradient's home. Returns when it may be
  // reused.
  Event UpdateChunk(ChunkId chunk, float factor, double lr,
                    const internal::PassingGrad* passing = nullptr);
  // Whether all parameters of the chunk have a gradient here, and none is read
  // in place. Ranks then update the chunk without asking each other.
  bool MayUpdateNow(ChunkId chunk) const;
  // Updates a reduced chunk before Step.
  void UpdateNow(ChunkId chunk);
  // The same with its gradient in device memory at `from`, which does not go
  // home. Returns when `from` may be reused.
  Event UpdateFrom(ChunkId chunk, std::byte* from, const Event& reduced);
  // What both do besides.
  void CountEarlyUpdate(ChunkId chunk);
  Status RequireNotUpdated(ChunkId chunk) const;
  Status RequireNotClipped(ParamId param) const;
  internal::UpdateWork MakeWork(ChunkId chunk, ShardRange range, float factor,
                                double lr) const;
  // That a custom optimizer was given its update.
  Status RequireUpdate() const;
  Status FinishProgramUpdate();
  WorkerPool* Workers() const {
    return options_.workers != nullptr ? options_.workers
                                       : &WorkerPool::Process();
  }
  void RefreshReplicas(ChunkId chunk);
  void RecordSpan(Lane& lane, const std::shared_ptr<RunEvent>& event,
                  bool begin) const;
  void RecordLeaseBegin(Lane& lane, const LeaseArena::Lease& lease, Bytes size);
  void RecordLeaseEnd(Lane& lane, int32_t lease);
  // Of the access served last; while a step ends, of its last one; else -1.
  int64_t Moment() const;
  // The same for collectives, where all ranks have it in common; else -1.
  int64_t SharedMoment() const { return turns_.any() ? -1 : Moment(); }
  RunEvent EventFor(RunEventKind kind, ChunkId chunk, RunCause cause) const;

  std::vector<Segment> Segments(ChunkId chunk, ShardRange range) const;
  const GroupInfo& GroupOf(ChunkId chunk) const;
  Bytes ChunkBytes(ChunkId chunk) const;  // of its parameters
  DType GradDType(ChunkId chunk) const {
    return sharding_.dtype(StateKind::kGrad, GroupOf(chunk));
  }
  ByteRange RangeBytes(ChunkId chunk, StateKind state, ShardRange range) const;
  // The range, cut so that each part lies within one piece of every state.
  std::vector<ShardRange> WithinPieces(ChunkId chunk, ShardRange range) const;
  // The parameter's chunk, which has the state; not valid where the parameter
  // has no elements.
  Result<ChunkId> ChunkOfMoment(ParamId param, StateKind state,
                                size_t elements) const;
  // Nothing is half done with the old values of the parameter.
  Status RequireWritable(ParamId param, std::string_view call) const;
  // Whole values of a parameter in fp32, each multiplied by `factor`, from the
  // state of its chunk and from all ranks. REQUIRES: it is in a chunk.
  Status ReadState(ParamId param, StateKind state, float factor,
                   std::span<float> out, std::string_view what);
  // What ReadGrad and WriteGrad ask for; `call` says which.
  Status RequireReduced(ParamId param, size_t elements,
                        std::string_view call) const;
  // Whether all ranks give these values.
  Status AgreeOnValues(ParamId param, std::span<const float> values,
                       std::string_view what);
  // That all ranks write the same to the same parameters.
  Status AgreeOnWrites(std::span<const ParamValues> written);
  // This rank's part of them, in place of what the state has: all of it, or
  // what differs in the parameter's own type. REQUIRES: the store has it.
  enum class Differing { kExactly, kInOwnType };
  Status Overwrite(ParamId param, StateKind kind, std::span<const float> values,
                   Differing differing = Differing::kExactly);
  bool Trainable(ChunkId chunk) const { return GroupOf(chunk).trainable; }

  ZeroOptions options_;
  Communicator* comm_;
  SteadyClock steady_clock_;
  Log default_log_;
  std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  Phase phase_ = Phase::kOpen;

  std::vector<Param> params_;
  OptimizerGroups groups_;
  LossScaler scaler_;
  // Those acquired so far, in order, but for evaluations.
  std::vector<ParamId> first_uses_;
  std::vector<bool> acquired_;  // by ParamId
  Sharding sharding_;
  SealBudgets least_;  // among ranks
  std::optional<ChunkLayout> layout_;
  std::vector<ChunkBindings> bindings_;  // by ChunkId; empty: no rules
  MemoryPlan memory_;
  Elements counted_piece_;  // where shards move whole: as if in such pieces
  Bytes widened_;           // by so much more host memory for staging

  // Destroyed in reverse: lanes stop before the memory their work touches goes.
  std::unique_ptr<RankPools> pools_;
  LeaseArena leases_;
  Slot lease_slot_;  // where they lie; not valid where there are none
  // Sums of squares: an ExactSum's words on the device, touched by the device
  // lane, and in host memory for their way from there; none where no norm is
  // counted. That of the host is touched by the host lane.
  Slot norm_slot_;
  Slab norm_words_;
  ExactSum host_squares_;
  bool parked_ = false;
  std::vector<ParkedShard> parked_shards_;
  std::vector<ShardStore::ShardId> vacated_;  // gradients, while parked
  std::map<int32_t, std::shared_ptr<RunEvent>> lease_events_;  // if recorded
  int64_t described_trace_ = 0;  // digest of its text
  std::unique_ptr<ShardStore> store_;
  std::vector<LoadTicket> ahead_;       // by ChunkId: of its last Gather
  std::vector<int32_t> held_in_place_;  // by ChunkId: leases of its home
  // Lent to the trainer; the spare ones are not, just now.
  std::vector<std::unique_ptr<ParamLease::Held>> leases_of_params_;
  std::vector<ParamLease::Held*> spare_leases_;
  std::unique_ptr<LeaseCopies> lease_copies_;  // null: none were made
  std::unique_ptr<MemoryManager> manager_;
  std::vector<ChunkGrad> grads_;  // by ChunkId
  int headroom_ = 0;              // of their sums
  bool grows_ = false;            // SealOptions::grow
  ReductionTurns turns_;  // none where chunks are reduced as they complete
  // Ranks that lack gradients follow the plan of those that have them.
  bool follows_plan_ = false;
  // By ChunkId, whose gradients wait for the flush where the step is not as
  // planned; empty: none do.
  std::vector<bool> waits_;
  size_t flushed_at_ = 0;  // accesses before the last flush of the step
  uint64_t events_ = 0;    // since then
  // Of this step, once ClipGradients was called.
  struct Clipped {
    Agreement norm;
    double max_norm = 0;
  };
  std::optional<Clipped> clipped_;
  bool recounts_ = false;  // something is in the norm twice: Step counts anew
  std::vector<uint64_t> agreed_words_;
  // Reductions, which wait for gradients to be computed, have a lane of their
  // own: a gather that was called after one need not wait for it. Both are
  // called in one order on all ranks.
  std::unique_ptr<Lane> comm_lane_;
  std::unique_ptr<Lane> reduce_lane_;
  std::unique_ptr<Lane> host_lane_;
  std::unique_ptr<Lane> device_lane_;
  // Folders that were saved to, which are this process's while it trains.
  std::map<std::string, std::unique_ptr<const FolderHold>> held_folders_;
  std::shared_ptr<Saving> saving_;  // under way; null: none
  std::optional<Result<SaveResult>> saved_;

  int64_t step_ = 0;           // steps made
  int64_t micro_batches_ = 0;  // of the step being made
  bool last_micro_batch_ = false;
  int64_t ending_moment_ = -1;      // the last one of a step that ends
  std::optional<double> early_lr_;  // of this step, if it may update early
  bool updated_early_ = false;      // the step that ended last might
  int64_t early_updates_ = 0;
  std::shared_ptr<internal::ProgramUpdate> program_update_;  // null: none
  int evaluating_ = 0;
  int64_t step_begin_ns_ = 0;
  int64_t reduce_scatters_ = 0;
  int64_t reduced_in_step_ = 0;  // chunks, each counted as often as reduced
  Bytes engine_copies_;
  EngineStats final_stats_;  // once closed
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ENGINE_ZERO_ENGINE_IMPL_H_
