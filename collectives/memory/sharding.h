// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_SHARDING_H_
#define CASTOR_COLLECTIVES_MEMORY_SHARDING_H_

// What each ZeRO stage (Rajbhandari et al. 2020) means for one rank: which
// states exist, which are whole on every rank and which are sliced, and which
// elements this rank's optimizer updates.
//
// Ranks lie along two axes, inside a group and across groups (rank_scope.h),
// and a state is cut or replicated along each:
//
//     state                         inside          across
//     parameters                    stage 3         never
//     gradients (reduced),          stages 1 to 3   where optimizer states
//     masters, moments                              span the world
//
// One group of all ranks, the default, is plain ZeRO: nothing lies across. A
// group of one rank cuts nothing inside. Every rank reduces the slice of C / W
// elements that its place in the world says, over all ranks and in their order,
// whatever the table; what it keeps more of is gathered afterwards. Value.

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/rank_scope.h"
#include "placement/memory_passes.h"
#include "placement/state_kind.h"

namespace castor {

enum class RankAxis : uint8_t { kInside, kAcross };

struct Sharding {
  int stage = 3;
  int world = 1;
  int rank = 0;
  StateNames states = {};            // of what the optimizer keeps
  DType moment_dtype = DType::kF32;  // kBlocks8: of groups that say so
  bool fp32_grads = false;  // gradients are fp32, whatever the parameters
  // Gradients stay in the trainer's memory, and have no place in a tier.
  bool borrows_grads = false;
  int shard_group = 0;  // ranks that share one set of shards; 0: all
  // Gradients and optimizer states are cut across groups, too.
  bool spans_world = false;

  // Ranks along the axis.
  int ranks(RankAxis axis) const {
    const int inside = shard_group > 0 ? shard_group : world;
    return axis == RankAxis::kInside ? inside : world / inside;
  }

  // The table above. Reduced gradients follow the optimizer states: from stage
  // 1 on only the own shard is kept, since what is whole is a gradient that is
  // not reduced yet.
  bool cut(StateKind state, RankAxis axis) const {
    if (state == StateKind::kParam) {
      return axis == RankAxis::kInside && stage >= 3;
    }
    return stage >= 1 && (axis == RankAxis::kInside || spans_world);
  }

  // Into how many the state of a chunk is cut, of which a rank keeps one.
  int pieces(StateKind state) const {
    int pieces = 1;
    for (const RankAxis axis : {RankAxis::kInside, RankAxis::kAcross}) {
      if (cut(state, axis)) pieces *= ranks(axis);
    }
    return pieces;
  }
  // Whether every rank keeps the whole of the state.
  bool replicated(StateKind state) const { return pieces(state) == 1; }

  // Ranks among which updated parameters are gathered for the others' copies;
  // 1: every rank updates what it keeps.
  int refreshed_ranks() const {
    return pieces(OptimizerState(0)) / pieces(StateKind::kParam);
  }
  bool refreshes() const { return refreshed_ranks() > 1; }
  // Ranks among which reduced slices of gradients are gathered; 1: a slice is
  // what a rank keeps.
  int joined_ranks() const { return world / pieces(StateKind::kGrad); }

  // Whom a rank gathers parameters from, to use them.
  RankScope param_scope() const {
    return Scope(cut(StateKind::kParam, RankAxis::kInside),
                 cut(StateKind::kParam, RankAxis::kAcross));
  }
  // By which slices gradients are reduced: over all ranks.
  RankScope reduce_scope() const { return Scope(true, true); }
  // REQUIRES: joined_ranks() > 1.
  RankScope join_scope() const {
    return Scope(!cut(StateKind::kGrad, RankAxis::kInside),
                 !cut(StateKind::kGrad, RankAxis::kAcross));
  }
  // REQUIRES: refreshes().
  RankScope refresh_scope() const {
    const auto beside = [this](RankAxis axis) {
      return cut(OptimizerState(0), axis) && !cut(StateKind::kParam, axis);
    };
    return Scope(beside(RankAxis::kInside), beside(RankAxis::kAcross));
  }

  bool exists(StateKind state, const GroupInfo& group) const {
    if (state == StateKind::kParam) return true;
    if (!group.trainable) return false;
    if (state == StateKind::kMaster) return group.dtype != DType::kF32;
    if (state == StateKind::kGrad) return !borrows_grads;
    if (!IsOptimizerState(state)) return true;
    const int index = OptimizerStateIndex(state);
    return index < states.optimizer_states() &&
           (group.states < 0 || index < group.states);
  }

  DType dtype(StateKind state, const GroupInfo& group) const {
    switch (state) {
      case StateKind::kMaster:
        return DType::kF32;
      case StateKind::kGrad:
        return fp32_grads ? DType::kF32 : group.dtype;
      default:
        if (!IsOptimizerState(state)) return group.dtype;
        if (!IsBlocks8(moment_dtype)) return moment_dtype;
        if (!group.moments8) return DType::kF32;
        return state == OptimizerState(0) ? DType::kBlocks8
                                          : DType::kBlocks8Positive;
    }
  }

  // What an update of a chunk of the group works on. REQUIRES: it is trained.
  UpdatePass update_pass(const GroupInfo& group) const {
    int kept = 0;
    for (int i = 0; i < states.optimizer_states(); ++i) {
      kept += exists(OptimizerState(i), group);
    }
    return {dtype(StateKind::kGrad, group), group.dtype,
            dtype(OptimizerState(0), group), kept};
  }

  // What this rank keeps of the state, in elements of the chunk.
  ShardRange kept(StateKind state, const ChunkLayout& layout,
                  ChunkId chunk) const {
    const Elements size = layout.chunk(chunk).size / pieces(state);
    const int place = replicated(state) ? 0
                                        : Scope(cut(state, RankAxis::kInside),
                                                cut(state, RankAxis::kAcross))
                                              .place(rank, world);
    return {size * place, size * (place + 1)};
  }

  // The elements this rank updates.
  ShardRange updated(const ChunkLayout& layout, ChunkId chunk) const {
    return kept(OptimizerState(0), layout, chunk);
  }

  // The elements this rank counts in sums over all ranks, every element once:
  // the slice that it reduces. Part of what it keeps of any state.
  ShardRange counted(const ChunkLayout& layout, ChunkId chunk) const {
    return layout.shard(chunk, reduce_scope().place(rank, world));
  }

 private:
  // Among the ranks along these axes. Two scopes of the same ranks are the same
  // value, since ranks and records compare scopes.
  RankScope Scope(bool inside, bool across) const {
    const int32_t size = ranks(RankAxis::kInside);
    if (size == 1 || size == world) return RankScope();
    if (inside && across) return {Among::kWorld, size};
    return {inside ? Among::kGroup : Among::kReplicas, size};
  }
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_MEMORY_SHARDING_H_
