// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_GRADIENTS_UPDATE_GUESSES_H_
#define CASTOR_COLLECTIVES_ENGINE_GRADIENTS_UPDATE_GUESSES_H_

// Part of OptimizerPass (optimizer_pass.h).
//
// Updates that begin before the norm is known, with the guess that the step is
// neither clipped nor skipped. New states go into spare places of shards
// (ShardStore::TakeAside), and the old ones stay. At Step a guess that was
// right is committed: the spare place becomes the home. Any other guess is
// dropped, and the chunk is updated then. In both cases new states
// are one function of old states, gradient and factor, so bits are equal.
// Ranks need not guess alike. Owner thread only.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/ids.h"
#include "collectives/engine/engine_base.h"
#include "collectives/engine/memory/home_passes.h"
#include "offload/shards/window_work.h"

namespace castor::internal {

class UpdateGuesses {
 public:
  explicit UpdateGuesses(EngineBase& base)
      : model_(base.model), memory_(base.memory), progress_(base.progress) {}

  // The step that is made may guess; `lr`: its rate as far as known.
  void Allow(double lr) { lr_ = lr; }
  // The rate of guesses that may be made now; none: none may. The last
  // micro-batch is taken to be as many as in the step before. After a guess
  // that was wrong some steps make none.
  std::optional<double> rate() const;

  // Takes spare places for what the pass writes, in host memory where there is
  // room. False, with none taken, where there is none, and where a drive that
  // falls behind would move more bytes for the guess.
  bool TakePlaces(ChunkId chunk, std::span<const HomePass::Use> uses);
  // Gives the places back, if any are taken, and forgets the guess.
  void GivePlaces(ChunkId chunk);
  // The pass begins, in these places. Returns what tells it that the guess was
  // dropped.
  WorkDropped Begin(ChunkId chunk, float factor, double lr);
  bool holds(ChunkId chunk) const {
    return !guesses_.empty() && guesses_[chunk.index()].dropped != nullptr;
  }
  // Whether the chunk's guess was this and its new states are there as far as
  // known: commits the guess, else drops it.
  bool Settle(ChunkId chunk, float factor, double lr);
  // The chunk's guess is of other states, gradients or numbers than the step
  // will have.
  void Drop(ChunkId chunk);
  void DropAll();
  void Abandon();
  void EndStep();

  int64_t begun() const { return begun_; }
  int64_t committed() const { return committed_; }

 private:
  struct Guess {
    WorkDropped dropped;  // null: the chunk has none
    float factor = 1;
    double lr = 0;
    std::vector<StateKind> states;  // with spare places
  };

  bool TakePlace(ChunkId chunk, StateKind state);
  // Whether no write of the new states has failed so far. Warns of a failure.
  bool AreThere(ChunkId chunk, std::span<const StateKind> states);

  const EngineModel& model_;
  EngineMemory& memory_;
  const StepProgress& progress_;
  std::optional<double> lr_;    // of this step, if it may guess
  std::vector<Guess> guesses_;  // by ChunkId; empty: none was made
  int64_t micro_batches_ = 1;   // of the step before
  bool missed_ = false;         // a guess of this step was wrong
  bool hit_ = false;            // one was right
  int64_t pause_ = 0;           // steps that make none
  int64_t next_pause_ = 1;
  int64_t begun_ = 0;
  int64_t committed_ = 0;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_GRADIENTS_UPDATE_GUESSES_H_
