// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_SHARDING_H_
#define CASTOR_COLLECTIVES_SHARDING_H_

// What each ZeRO stage (Rajbhandari et al. 2020) means for one rank: which
// states exist, which are whole on every rank and which are sliced, and which
// elements this rank's optimizer updates. Value.

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "placement/run_event.h"

namespace castor {

struct Sharding {
  int stage = 3;
  int world = 1;
  int rank = 0;
  int moments = 2;  // that the optimizer keeps
  DType moment_dtype = DType::kF32;
  bool fp32_grads = false;  // gradients are fp32, whatever the parameters

  // Whether every rank keeps the whole of the state. Reduced gradients follow
  // the optimizer states: from stage 1 on only the own shard is kept, since
  // what is whole is a gradient that is not reduced yet.
  bool replicated(StateKind state) const {
    if (world == 1) return true;
    return state == StateKind::kParam ? stage < 3 : stage < 1;
  }

  // Whether updated parameters must be gathered for the other ranks' copies.
  bool refreshes() const { return world > 1 && (stage == 1 || stage == 2); }

  bool exists(StateKind state, const GroupInfo& group) const {
    if (state == StateKind::kParam) return true;
    if (!group.trainable) return false;
    switch (state) {
      case StateKind::kMaster:
        return group.dtype != DType::kF32;
      case StateKind::kExpAvg:
        return moments >= 1;
      case StateKind::kExpAvgSq:
        return moments >= 2;
      default:
        return true;
    }
  }

  DType dtype(StateKind state, const GroupInfo& group) const {
    switch (state) {
      case StateKind::kMaster:
        return DType::kF32;
      case StateKind::kGrad:
        return fp32_grads ? DType::kF32 : group.dtype;
      case StateKind::kExpAvg:
      case StateKind::kExpAvgSq:
        return moment_dtype;
      default:
        return group.dtype;
    }
  }

  // What this rank keeps of the state, in elements of the chunk.
  ShardRange kept(StateKind state, const ChunkLayout& layout,
                  ChunkId chunk) const {
    if (replicated(state)) return {Elements(0), layout.chunk(chunk).size};
    return layout.shard(chunk, rank);
  }

  // The elements this rank updates.
  ShardRange updated(const ChunkLayout& layout, ChunkId chunk) const {
    return kept(StateKind::kExpAvg, layout, chunk);
  }

  // The elements this rank counts in sums over all ranks: every element once.
  ShardRange counted(const ChunkLayout& layout, ChunkId chunk) const {
    return layout.shard(chunk, rank);
  }
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_SHARDING_H_
