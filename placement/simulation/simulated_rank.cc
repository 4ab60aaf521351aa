// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/simulated_rank.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace castor::internal {
namespace {

int64_t RingNs(const std::optional<RingModel>& ring, Bytes bytes, int world) {
  if (!ring) return 0;
  return std::llround(RingSeconds(*ring, 1, bytes, world) * 1e9);
}

}  // namespace

std::vector<bool> InLastMicroBatch(const Trace& trace, size_t chunks) {
  std::vector<int64_t> micro_batch;     // by moment
  std::vector<int64_t> opened(chunks);  // by ChunkId, in which, from 1
  int64_t now = 1;
  for (const Access& access : trace) {
    if (access.kind == AccessKind::kGradOpen) {
      int64_t& last = opened[access.chunk.index()];
      now += last == now;
      last = now;
    }
    micro_batch.push_back(now);
  }
  std::vector<bool> in_last;
  in_last.reserve(trace.size());
  for (const int64_t each : micro_batch) in_last.push_back(each == now);
  return in_last;
}

SimulatedRank::SimulatedRank(const StepTrace* trace,
                             const SimulatedEngine* engine,
                             const TierModel* machine, SimTrainer trainer,
                             const std::optional<LinkModel>& device_memory)
    : trace_(trace),
      engine_(engine),
      machine_(machine),
      wires_(&loop_, *machine, device_memory),
      moves_(&loop_, &wires_, engine),
      copies_(&loop_, engine, &trace->accesses, this),
      trainer_(&loop_, trainer == SimTrainer::kThread ? SimLane::Kind::kThread
                                                      : SimLane::Kind::kQueue),
      comm_(&loop_),
      host_(&loop_),
      device_(&loop_),
      last_micro_batch_(
          InLastMicroBatch(trace->accesses, engine->chunks.size())),
      grads_(engine->chunks.size()) {}

std::array<int64_t, kSimResources> SimulatedRank::busy_ns() const {
  return {compute_ns_,
          wires_.busy_ns(Traffic::kToDevice),
          wires_.busy_ns(Traffic::kFromDevice),
          wires_.busy_ns(Traffic::kDriveRead) +
              wires_.busy_ns(Traffic::kDriveWrite),
          wires_.busy_ns(Traffic::kOptimizer) +
              wires_.busy_ns(Traffic::kMemoryPass),
          collectives_ns_,
          wires_.busy_ns(Traffic::kDevice)};
}

Status SimulatedRank::MakeStep(std::function<void()> ended) {
  for (size_t i = 0; i < trace_->accesses.size(); ++i) {
    CASTOR_RETURN_IF_ERROR(Serve(i));
    Compute(i);
  }
  trainer_.Run(std::move(ended));
  CASTOR_RETURN_IF_ERROR(copies_.EndStep());
  if (CountsNorm()) CASTOR_RETURN_IF_ERROR(CountLeftSquares());
  Agree();
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (!grads_[c].valid) continue;
    CASTOR_RETURN_IF_ERROR(Update(ChunkId(static_cast<int32_t>(c))));
    grads_[c] = Gradient();
  }
  copies_.BeginStep();
  return OkStatus();
}

Status SimulatedRank::Serve(size_t moment) {
  const auto [kind, chunk] = trace_->accesses[moment];
  switch (kind) {
    case AccessKind::kUse:
      return copies_.Acquire(chunk, trainer_);
    case AccessKind::kUseEnd:
      copies_.EndUse(chunk, trainer_);
      return OkStatus();
    case AccessKind::kGradOpen: {
      CASTOR_ASSIGN_OR_RETURN(grads_[chunk.index()].slot,
                              copies_.OpenGrad(chunk, trainer_));
      QueueKernel(trainer_, Facts(chunk).gathered);  // zeroes it
      return OkStatus();
    }
    case AccessKind::kGradClose:
      return Reduce(chunk, last_micro_batch_[moment]);
  }
  return OkStatus();
}

void SimulatedRank::Compute(size_t moment) {
  if (trace_->compute_ns.empty() || trace_->compute_ns[moment] == 0) return;
  const int64_t ns = trace_->compute_ns[moment];
  trainer_.RunAsync([this, ns](const SimSource& source) {
    loop_.At(loop_.now_ns() + ns, [this, ns, source] {
      compute_ns_ += ns;
      source.Complete();
    });
  });
}

void SimulatedRank::QueueCollective(Collective which, Bytes bytes) {
  wire_sent_ += bytes / engine_->world * (engine_->world - 1);
  const int64_t ns =
      RingNs(which == Collective::kAllGather ? machine_->all_gather
                                             : machine_->reduce_scatter,
             bytes, engine_->world);
  QueueExchange(ns);
}

// Others come when this rank has done what it can: its calls come first.
void SimulatedRank::QueueExchange(int64_t ns) {
  comm_.RunAsync([this, ns](const SimSource& source) {
    if (ns > 0) {
      loop_.At(loop_.now_ns() + ns, [this, ns, source] {
        collectives_ns_ += ns;
        source.Complete();
      });
    } else if (engine_->world > 1) {
      loop_.Post([source] { source.Complete(); });
    } else {
      source.Complete();
    }
  });
}

SimEvent SimulatedRank::Gather(ChunkId chunk, const SimEvent& after,
                               RunCause cause) {
  const StateKind kind = StateKind::kParam;
  const Bytes kept = moves_.bytes(chunk, kind);
  if (engine_->whole_params) {
    return moves_.Load(chunk, kind, kept, after, cause);
  }
  const bool on_device = moves_.home(chunk, kind) == Tier::kDevice;
  if (on_device) {
    comm_.Wait(after);
    comm_.Wait(moves_.written(chunk, kind));
  } else {
    comm_.Wait(moves_.Load(chunk, kind, kept, after, cause));
  }
  QueueCollective(Collective::kAllGather, Facts(chunk).gathered);
  SimEvent gathered = comm_.Record();
  if (on_device) moves_.AddReader(chunk, kind, gathered);
  return gathered;
}

SimEvent SimulatedRank::DirectReady(ChunkId chunk) {
  return moves_.written(chunk, StateKind::kParam);
}

void SimulatedRank::DirectUsed(ChunkId chunk, SimEvent last_use) {
  moves_.AddReader(chunk, StateKind::kParam, std::move(last_use));
}

Status SimulatedRank::Reduce(ChunkId chunk, bool last_micro_batch) {
  Gradient& grad = grads_[chunk.index()];
  SimEvent reduced = trainer_.Record();
  const bool squares = CountsNorm() && last_micro_batch;
  const bool at_home = engine_->world > 1 && !grad.valid &&
                       moves_.home(chunk, StateKind::kGrad) == Tier::kDevice;
  if (engine_->world > 1) {
    if (at_home) comm_.Wait(moves_.WriteReady(chunk, StateKind::kGrad));
    comm_.Wait(reduced);
    QueueCollective(Collective::kReduceScatter, Facts(chunk).gathered);
    if (engine_->whole_grads) {
      QueueCollective(Collective::kAllGather, Facts(chunk).gathered);
    }
    reduced = comm_.Record();
    ++reduce_scatters_;
  }
  CASTOR_ASSIGN_OR_RETURN(SimEvent free_after,
                          Deposit(chunk, at_home, reduced, squares));
  grad.valid = true;
  grad.counted |= squares;
  copies_.CloseGrad(grad.slot, std::move(free_after));
  return OkStatus();
}

Result<SimEvent> SimulatedRank::Deposit(ChunkId chunk, bool at_home,
                                        const SimEvent& reduced, bool squares) {
  if (moves_.home(chunk, StateKind::kGrad) != Tier::kDevice) {
    return DepositOnHost(chunk, reduced, squares);
  }
  return DepositOnDevice(chunk, at_home, reduced, squares);
}

SimEvent SimulatedRank::DepositOnDevice(ChunkId chunk, bool at_home,
                                        const SimEvent& reduced, bool squares) {
  const StateKind kind = StateKind::kGrad;
  if (at_home) {
    moves_.SetWritten(chunk, kind, reduced);
    if (!squares) return reduced;
  }
  device_.Wait(reduced);
  if (!at_home) {
    device_.Wait(moves_.WriteReady(chunk, kind));
    // Copies it, or adds it.
    const Bytes bytes = moves_.bytes(chunk, kind);
    QueueKernel(device_, bytes * (grads_[chunk.index()].valid ? 3 : 2));
  }
  if (squares) QueueKernel(device_, Counted(chunk));
  SimEvent done = device_.Record();
  if (at_home) {
    moves_.AddReader(chunk, kind, done);
    return reduced;
  }
  moves_.SetWritten(chunk, kind, done);
  return done;
}

Result<SimEvent> SimulatedRank::DepositOnHost(ChunkId chunk,
                                              const SimEvent& reduced,
                                              bool squares) {
  const StateKind kind = StateKind::kGrad;
  const Bytes bytes = moves_.bytes(chunk, kind);
  if (!grads_[chunk.index()].valid) {
    SimEvent free_after = moves_.Store(chunk, kind, bytes, reduced);
    if (!squares) return free_after;
    device_.Wait(reduced);
    QueueKernel(device_, Counted(chunk));
    return Both(free_after, device_.Record());
  }
  // The new part and the sum so far, together.
  const ShardMoves::Request requests[] = {
      {chunk, kind, bytes, ShardMoves::Mode::kScratch, reduced},
      {chunk, kind, bytes, ShardMoves::Mode::kReadWrite, SimEvent()}};
  CASTOR_ASSIGN_OR_RETURN(const std::vector<ShardMoves::Window> windows,
                          moves_.Open(requests));
  const ShardMoves::Window& part = windows.front();
  const ShardMoves::Window& total = windows.back();
  host_.Wait(part.ready);
  host_.Wait(total.ready);
  // Both are read and one is written, and then read again.
  QueueTraffic(host_, &wires_, Traffic::kMemoryPass, bytes * (squares ? 4 : 3));
  const SimEvent added = host_.Record();
  moves_.Close(total, added);
  moves_.Close(part, added);
  return part.ready;
}

// Chunks without a gradient in the last micro-batch, whose sums were complete
// before.
Status SimulatedRank::CountLeftSquares() {
  const StateKind kind = StateKind::kGrad;
  for (size_t c = 0; c < grads_.size(); ++c) {
    if (!grads_[c].valid || grads_[c].counted) continue;
    const ChunkId chunk(static_cast<int32_t>(c));
    if (moves_.home(chunk, kind) == Tier::kDevice) {
      device_.Wait(moves_.written(chunk, kind));
      QueueKernel(device_, Counted(chunk));
      moves_.AddReader(chunk, kind, device_.Record());
      continue;
    }
    const ShardMoves::Request request{chunk, kind, moves_.bytes(chunk, kind),
                                      ShardMoves::Mode::kRead, SimEvent()};
    CASTOR_ASSIGN_OR_RETURN(const std::vector<ShardMoves::Window> windows,
                            moves_.Open({&request, 1}));
    host_.Wait(windows.front().ready);
    QueueTraffic(host_, &wires_, Traffic::kMemoryPass, request.size);
    moves_.Close(windows.front(), host_.Record());
  }
  return OkStatus();
}

// The one thing a step waits for.
void SimulatedRank::Agree() {
  if (CountsNorm()) {
    QueueTraffic(device_, &wires_, Traffic::kFromDevice, engine_->norm);
  }
  const SimEvent fetched = device_.Record();
  if (CountsNorm()) QueueKernel(device_, engine_->norm);
  comm_.Wait(fetched);
  comm_.Wait(host_.Record());
  comm_.Run([] {});
  // All words go out to be added, and a slice's sums to everybody.
  const int world = engine_->world;
  const int64_t words = engine_->agreed_words;
  const int64_t slice =
      words * (engine_->rank + 1) / world - words * engine_->rank / world;
  if (world > 1) {
    wire_sent_ += Bytes(8) * (words - slice + slice * (world - 1));
  }
  const Bytes bytes = Bytes(8) * words;
  QueueExchange(RingNs(machine_->reduce_scatter, bytes, world) +
                RingNs(machine_->all_gather, bytes, world));
  loop_.RunUntil(comm_.Record());
}

Status SimulatedRank::Update(ChunkId chunk) {
  bool on_device = true;
  for (int k = 0; k < kStateKinds; ++k) {
    const StateKind state = static_cast<StateKind>(k);
    if (moves_.has(chunk, state) &&
        moves_.home(chunk, state) != Tier::kDevice) {
      on_device = false;
    }
  }
  if (on_device) {
    UpdateOnDevice(chunk);
  } else {
    CASTOR_RETURN_IF_ERROR(UpdateOnHost(chunk));
  }
  return engine_->refreshes ? Refresh(chunk) : OkStatus();
}

void SimulatedRank::UpdateOnDevice(ChunkId chunk) {
  constexpr StateKind kWritten[] = {StateKind::kParam, StateKind::kMaster,
                                    StateKind::kExpAvg, StateKind::kExpAvgSq};
  device_.Wait(moves_.written(chunk, StateKind::kGrad));
  for (const StateKind state : kWritten) {
    if (moves_.has(chunk, state)) {
      device_.Wait(moves_.WriteReady(chunk, state));
    }
  }
  QueueKernel(device_, Facts(chunk).update_traffic);
  const SimEvent done = device_.Record();
  moves_.AddReader(chunk, StateKind::kGrad, done);
  for (const StateKind state : kWritten) {
    if (moves_.has(chunk, state)) moves_.SetWritten(chunk, state, done);
  }
}

Status SimulatedRank::UpdateOnHost(ChunkId chunk) {
  using Mode = ShardMoves::Mode;
  const bool masters = moves_.has(chunk, StateKind::kMaster);
  const std::pair<StateKind, Mode> wanted[] = {
      {StateKind::kGrad, Mode::kRead},
      {StateKind::kParam, masters ? Mode::kWrite : Mode::kReadWrite},
      {StateKind::kMaster, Mode::kReadWrite},
      {StateKind::kExpAvg, Mode::kReadWrite},
      {StateKind::kExpAvgSq, Mode::kReadWrite}};
  std::vector<ShardMoves::Request> requests;
  for (const auto& [state, mode] : wanted) {
    if (!moves_.has(chunk, state)) continue;
    const Bytes size = Facts(chunk).states[static_cast<size_t>(state)].updated;
    requests.push_back({chunk, state, size, mode, SimEvent()});
  }
  CASTOR_ASSIGN_OR_RETURN(const std::vector<ShardMoves::Window> windows,
                          moves_.Open(requests));
  for (const ShardMoves::Window& window : windows) host_.Wait(window.ready);
  QueueTraffic(host_, &wires_, Traffic::kOptimizer,
               Facts(chunk).update_traffic);
  const SimEvent done = host_.Record();
  for (const ShardMoves::Window& window : windows) moves_.Close(window, done);
  return OkStatus();
}

// Every rank has updated its slice of a replicated chunk: the others' slices
// are gathered, in place where the home is the device, else through a slot.
Status SimulatedRank::Refresh(ChunkId chunk) {
  const StateKind kind = StateKind::kParam;
  const Bytes whole = Facts(chunk).gathered;
  if (moves_.home(chunk, kind) == Tier::kDevice) {
    comm_.Wait(moves_.WriteReady(chunk, kind));
    QueueCollective(Collective::kAllGather, whole);
    moves_.SetWritten(chunk, kind, comm_.Record());
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(const GatheredCopies::Slot slot,
                          copies_.Borrow(chunk));
  comm_.Wait(moves_.Load(chunk, kind, whole / engine_->world, slot.free_after,
                         RunCause::kRefresh));
  QueueCollective(Collective::kAllGather, whole);
  const SimEvent gathered = comm_.Record();
  copies_.Return(slot, moves_.Store(chunk, kind, whole, gathered));
  return OkStatus();
}

}  // namespace castor::internal
