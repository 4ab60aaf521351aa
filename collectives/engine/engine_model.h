// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_ENGINE_MODEL_H_
#define CASTOR_COLLECTIVES_ENGINE_ENGINE_MODEL_H_

// What an engine trains, and how: the parameters registered, where each lies in
// its chunk, how ranks share the states. Registering and sealing write the
// model; all other parts of the engine (zero_engine_parts.h) read it. Owner
// thread only, but for the options, which do not change in a step.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/communicator.h"
#include "collectives/memory/sharding.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/shards/shard_store.h"
#include "offload/worker_pool.h"
#include "placement/placement_rules.h"
#include "placement/state_kind.h"

namespace castor::internal {

struct EngineParam {
  ParamSpec spec;
  Initializer initializer;
  Elements size;
  Bytes offset;      // in its chunk
  size_t group = 0;  // of the optimizer's groups
};

// A run of elements of one parameter inside a chunk.
struct Segment {
  ParamId param;
  int64_t begin = 0;  // in the parameter
  int64_t count = 0;
  int64_t offset = 0;  // from the start of the range asked for
};

struct EngineModel {
  EngineModel(const ZeroOptions& of, Communicator* communicator);
  EngineModel(const EngineModel&) = delete;
  EngineModel& operator=(const EngineModel&) = delete;

  ZeroOptions options;  // the clock and the log are never null
  Communicator* const comm;
  std::vector<EngineParam> params;
  Sharding sharding;
  // Among ranks, without the bytes of gradients that are borrowed.
  SealBudgets least;
  std::optional<ChunkLayout> layout;    // none before Seal
  std::vector<ChunkBindings> bindings;  // by ChunkId; empty: no rules
  // The power of two by which every rank divides its gradients before they are
  // added, so that a sum over ranks and micro-batches reaches no further than
  // their average.
  int headroom = 0;

  const EngineParam& param(ParamId id) const { return params[id.index()]; }
  const std::string& Name(ParamId id) const { return param(id).spec.name; }
  std::vector<ParamSpec> Specs() const;
  // REQUIRES, from here on: a layout. Not valid where the parameter has no
  // elements.
  ChunkId chunk_of(ParamId id) const { return layout->place(id).chunk; }
  size_t chunks() const { return layout->chunks().size(); }
  std::vector<Segment> Segments(ChunkId chunk, ShardRange range) const;
  const GroupInfo& GroupOf(ChunkId chunk) const;
  bool Trainable(ChunkId chunk) const { return GroupOf(chunk).trainable; }
  DType dtype(StateKind state, ChunkId chunk) const {
    return sharding.dtype(state, GroupOf(chunk));
  }
  DType GradDType(ChunkId chunk) const {
    return dtype(StateKind::kGrad, chunk);
  }
  ShardRange kept(StateKind state, ChunkId chunk) const {
    return sharding.kept(state, *layout, chunk);
  }
  ShardRange counted(ChunkId chunk) const {
    return sharding.counted(*layout, chunk);
  }
  ShardRange updated(ChunkId chunk) const {
    return sharding.updated(*layout, chunk);
  }
  // Of a state as this rank keeps it.
  ByteRange RangeBytes(ChunkId chunk, StateKind state, ShardRange range) const;

  bool borrows_grads() const { return sharding.borrows_grads; }
  bool grads_in_place() const { return options.grad_mode == GradMode::kReuse; }
  // Chunks are reduced in turns (placement/trace/reduction_turns.h).
  bool takes_turns() const {
    return comm->world() > 1 && sharding.replicated(StateKind::kParam);
  }
  bool counts_norm() const { return CountsNorm(options); }
  WorkerPool& workers() const {
    return options.workers != nullptr ? *options.workers
                                      : WorkerPool::Process();
  }
  // A failure names parameters where it has the numbers of chunks.
  Status WithNames(const Status& failure) const;

 private:
  SteadyClock steady_clock_;
  Log default_log_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_ENGINE_MODEL_H_
