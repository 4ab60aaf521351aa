// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a simulated rank does with gradients and with the optimizer: their way
// home, the norm, updates, refreshed replicas.

#include <utility>
#include <vector>

#include "placement/memory_passes.h"
#include "placement/simulation/simulated_rank.h"

namespace castor::internal {

SimEvent SimulatedRank::PlaceUnused(ChunkId chunk) {
  if (!copies_.grad_in_place(chunk)) {
    return grads_[chunk.index()].slot.free_after;
  }
  return Direct(chunk) ? moves_.WriteReady(chunk, StateKind::kParam)
                       : copies_.UsesDone(chunk);
}

Result<SimEvent> SimulatedRank::Reduce(ChunkId chunk, bool last_micro_batch) {
  Gradient& grad = grads_[chunk.index()];
  SimEvent reduced = grad.ready ? *grad.ready : trainer_.Record();
  grad.ready.reset();
  const bool squares = CountsNorm() && last_micro_batch;
  const bool at_home = engine_->world > 1 && !grad.valid &&
                       moves_.home(chunk, StateKind::kGrad) == Tier::kDevice;
  if (engine_->world > 1) {
    if (at_home) reduce_.Wait(moves_.WriteReady(chunk, StateKind::kGrad));
    reduce_.Wait(reduced);
    const Bytes whole = Facts(chunk).gathered_grad;
    QueueCollective(reduce_, Collective::kReduceScatter, chunk, whole,
                    engine_->world);
    if (engine_->joined_ranks > 1) {
      QueueCollective(reduce_, Collective::kJoin, chunk,
                      moves_.bytes(chunk, StateKind::kGrad),
                      engine_->joined_ranks);
    }
    reduced = reduce_.Record();
    ++reduce_scatters_;
  }
  if (UpdatesEarly(chunk, last_micro_batch) && !grad.valid &&
      !copies_.grad_in_place(chunk) &&
      moves_.home(chunk, StateKind::kGrad) == Tier::kNvme) {
    grad.valid = grad.updated = true;
    return UpdateOnHost(chunk, &reduced);
  }
  CASTOR_ASSIGN_OR_RETURN(SimEvent free_after,
                          Deposit(chunk, at_home, reduced, squares));
  grad.valid = true;
  grad.counted |= squares;
  return free_after;
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
    const bool adds = grads_[chunk.index()].valid;
    QueueKernel(device_, DepositBytes(moves_.bytes(chunk, kind), adds));
  }
  if (squares) QueueKernel(device_, SquaresBytes(Counted(chunk)));
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
    QueueKernel(device_, SquaresBytes(Counted(chunk)));
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
  const Bytes counted = squares ? SquaresBytes(bytes) : Bytes(0);
  QueueSum(chunk, DepositBytes(bytes, /*adds=*/true) + counted);
  const SimEvent added = host_.Record();
  moves_.Close(total, added);
  moves_.Close(part, added);
  return part.ready;
}

void SimulatedRank::QueueSum(ChunkId chunk, Bytes bytes) {
  traffic_[chunk.index()].sum_bytes += bytes;
  QueueTraffic(host_, &wires_, Traffic::kMemoryPass, bytes);
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
      QueueKernel(device_, SquaresBytes(Counted(chunk)));
      moves_.AddReader(chunk, kind, device_.Record());
      continue;
    }
    const ShardMoves::Request request{chunk, kind, moves_.bytes(chunk, kind),
                                      ShardMoves::Mode::kRead, SimEvent()};
    CASTOR_ASSIGN_OR_RETURN(const std::vector<ShardMoves::Window> windows,
                            moves_.Open({&request, 1}));
    host_.Wait(windows.front().ready);
    QueueSum(chunk, SquaresBytes(request.size));
    moves_.Close(windows.front(), host_.Record());
  }
  return OkStatus();
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
  if (!on_device) return UpdateOnHost(chunk).status();
  UpdateOnDevice(chunk);
  return OkStatus();
}

void SimulatedRank::UpdateOnDevice(ChunkId chunk) {
  std::vector<StateKind> written;
  for (int k = 0; k < kStateKinds; ++k) {
    const auto state = static_cast<StateKind>(k);
    if (state != StateKind::kGrad && moves_.has(chunk, state)) {
      written.push_back(state);
    }
  }
  device_.Wait(moves_.written(chunk, StateKind::kGrad));
  for (const StateKind state : written) {
    device_.Wait(moves_.WriteReady(chunk, state));
  }
  traffic_[chunk.index()].updated_on_device += Facts(chunk).updated;
  QueueKernel(device_, Facts(chunk).update_traffic);
  const SimEvent done = device_.Record();
  moves_.AddReader(chunk, StateKind::kGrad, done);
  for (const StateKind state : written) moves_.SetWritten(chunk, state, done);
}

Result<SimEvent> SimulatedRank::UpdateOnHost(ChunkId chunk,
                                             const SimEvent* passing) {
  using Mode = ShardMoves::Mode;
  const bool masters = moves_.has(chunk, StateKind::kMaster);
  std::vector<std::pair<StateKind, Mode>> wanted = {
      {StateKind::kGrad, Mode::kRead},
      {StateKind::kParam, masters ? Mode::kWrite : Mode::kReadWrite},
      {StateKind::kMaster, Mode::kReadWrite}};
  for (int i = 0; i < kMaxOptimizerStates; ++i) {
    wanted.emplace_back(OptimizerState(i), Mode::kReadWrite);
  }
  std::vector<ShardMoves::Request> requests;
  for (const auto& [state, mode] : wanted) {
    if (!moves_.has(chunk, state)) continue;
    const Bytes size = Facts(chunk).states[static_cast<size_t>(state)].updated;
    requests.push_back(
        {chunk, state, size, mode, SimEvent(), DrivePriority::kOptimizer});
  }
  if (passing != nullptr) {
    requests.front().mode = Mode::kScratch;
    requests.front().after = *passing;
  }
  CASTOR_ASSIGN_OR_RETURN(const std::vector<ShardMoves::Window> windows,
                          moves_.Open(requests));
  for (const ShardMoves::Window& window : windows) host_.Wait(window.ready);
  const Bytes pass = Facts(chunk).update_traffic;
  traffic_[chunk.index()].updated_on_host += Facts(chunk).updated;
  traffic_[chunk.index()].update_bytes += pass;
  QueueTraffic(host_, &wires_, Traffic::kOptimizer, pass);
  const SimEvent done = host_.Record();
  for (const ShardMoves::Window& window : windows) moves_.Close(window, done);
  return passing != nullptr ? windows.front().ready : SimEvent();
}

// Every rank has updated part of what it keeps of the chunk's parameters: the
// rest is gathered, in place where the home is the device, else through a slot.
Status SimulatedRank::Refresh(ChunkId chunk) {
  const StateKind kind = StateKind::kParam;
  const Bytes whole = moves_.bytes(chunk, kind);
  const int ranks = engine_->refreshed_ranks;
  if (moves_.home(chunk, kind) == Tier::kDevice) {
    comm_.Wait(moves_.WriteReady(chunk, kind));
    QueueCollective(comm_, Collective::kAllGather, chunk, whole, ranks);
    moves_.SetWritten(chunk, kind, comm_.Record());
    return OkStatus();
  }
  CASTOR_ASSIGN_OR_RETURN(const SimSlot slot, copies_.Borrow(chunk));
  comm_.Wait(moves_.Load(chunk, kind, whole / ranks, slot.free_after,
                         RunCause::kRefresh));
  QueueCollective(comm_, Collective::kAllGather, chunk, whole, ranks);
  const SimEvent gathered = comm_.Record();
  copies_.Return(slot, moves_.Store(chunk, kind, whole, gathered));
  return OkStatus();
}

}  // namespace castor::internal
