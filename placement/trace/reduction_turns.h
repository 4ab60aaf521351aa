// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_TRACE_REDUCTION_TURNS_H_
#define CASTOR_PLACEMENT_TRACE_REDUCTION_TURNS_H_

// The order in which ranks reduce the gradients of chunks. A rank may lack a
// gradient that others have: a branch was not taken, an expert had no tokens.
// Nobody asks anybody while a step runs. All ranks reduce every trainable chunk
// once a micro-batch (once a step, where whole gradients are added up), in one
// order that all know:
//
//   order     b   a   d   c        the order of the step before
//   rank 0    b   a   d   c        each as soon as it is complete
//   rank 1    b   .   d   c        a is missing: d and c wait, in their slots
//             at the flush a, as zeros, then d and c
//
// The first step's order is that of a backward pass over chunks in the order of
// registration: the last chunk first. After a step it is the order in which
// rank 0's chunks were complete; what it had none of keeps its place once, and
// goes to the end when it is missing again. So ranks that do the same reduce as
// early as if there were no order, and nothing waits long for a chunk that is
// often missing.
//
// No rank waits in a circle. Who waits for a slot waits for a reduction that it
// has queued itself, so it has queued all that come before. Of all ranks that
// wait, the one that waits for the earliest reduction finds all others there.
//
// The engine asks it what to reduce, and so does who says what the engine will
// do (access_recorder.h). Thread-compatible. A value.

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/chunk_layout.h"

namespace castor {

class ReductionTurns {
 public:
  // None: there is nobody to agree with.
  ReductionTurns() = default;
  // The turns of the first step. `had`, by ParamId: which may have a gradient
  // at all; empty: all. Chunks of others come last.
  ReductionTurns(const ChunkLayout& layout, const std::vector<bool>& had);

  bool any() const { return !order_.empty(); }
  // On which ranks agree between steps.
  const std::vector<ChunkId>& order() const { return order_; }

  void BeginMicroBatch();
  // The chunk's gradient is all that this rank has of it.
  void Complete(ChunkId chunk);
  bool complete(ChunkId chunk) const { return complete_[chunk.index()]; }
  // The next chunk to reduce, which then counts as reduced; none while the one
  // whose turn it is is not complete.
  std::optional<ChunkId> TakeNext();
  // The chunk whose turn it is; none once all are reduced.
  std::optional<ChunkId> Awaited() const;
  // That chunk, which then counts as reduced: as zeros. REQUIRES: there is one.
  ChunkId TakeAwaited() { return turns_[turn_++]; }
  // Where slots run out: what is complete goes before what it waits for. False
  // where nothing is. Ranks that do the same do so at the same access; others
  // are refused by the first reduction that is not the same.
  bool LetPass();

  // What this rank proposes as the order of the next step: that of the
  // micro-batch that was completed last.
  std::vector<ChunkId> Proposed() const;
  // The step is over; the next one has this order.
  void Adopt(std::vector<ChunkId> order);

 private:
  std::vector<ChunkId> order_;
  std::vector<ChunkId> turns_;      // of this micro-batch
  size_t turn_ = 0;                 // the first of them that is not reduced
  std::vector<bool> complete_;      // by ChunkId
  std::vector<ChunkId> completed_;  // in this micro-batch, in order
  std::vector<bool> missed_;        // by ChunkId: at the end of the step before
};

}  // namespace castor

#endif  // CASTOR_PLACEMENT_TRACE_REDUCTION_TURNS_H_
