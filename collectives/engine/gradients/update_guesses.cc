// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/update_guesses.h"

#include <algorithm>
#include <utility>

namespace castor::internal {
namespace {

// Where each step is clipped a guess is tried once in so many steps.
constexpr int64_t kLongestPause = 32;

}  // namespace

std::optional<double> UpdateGuesses::rate() const {
  if (!lr_ || pause_ > 0 || !progress_.last_micro_batch ||
      progress_.micro_batches < micro_batches_) {
    return std::nullopt;
  }
  return lr_;
}

WorkDropped UpdateGuesses::Begin(ChunkId chunk,
                                 std::span<const HomePass::Use> uses,
                                 float factor, double lr) {
  ShardStore& store = memory_.store();
  // The guess would be enlisted later, when the spare places may be gone.
  if (store.staging().OthersWait()) return nullptr;
  const auto& places = memory_.plan().states[chunk.index()];
  std::vector<StateKind> taken;
  for (const auto& [state, mode] : uses) {
    if (mode == WindowMode::kRead) continue;
    const StatePlace& place = places[static_cast<size_t>(state)];
    if (place.spare_class < 0 || store.home(chunk, state) != place.home ||
        !store.TakeAside(chunk, state, place.spare_class).ok()) {
      for (const StateKind other : taken) store.DropAside(chunk, other);
      return nullptr;
    }
    taken.push_back(state);
  }
  guesses_.resize(model_.chunks());
  Guess& guess = guesses_[chunk.index()];
  guess = {std::make_shared<std::atomic<bool>>(false), factor, lr,
           std::move(taken)};
  ++begun_;
  return guess.dropped;
}

bool UpdateGuesses::Settle(ChunkId chunk, float factor, double lr) {
  if (!holds(chunk)) return false;
  Guess& guess = guesses_[chunk.index()];
  const bool right = guess.factor == factor && guess.lr == lr;
  missed_ |= !right;
  // Requests that wait are of the old places.
  if (!right || memory_.store().staging().OthersWait()) {
    Drop(chunk);
    return false;
  }
  for (const StateKind state : guess.states) {
    memory_.store().CommitAside(chunk, state);
  }
  guess = Guess();
  hit_ = true;
  ++committed_;
  return true;
}

void UpdateGuesses::Drop(ChunkId chunk) {
  if (!holds(chunk)) return;
  Guess& guess = guesses_[chunk.index()];
  *guess.dropped = true;
  for (const StateKind state : guess.states) {
    memory_.store().DropAside(chunk, state);
  }
  guess = Guess();
}

void UpdateGuesses::DropAll() {
  for (size_t c = 0; c < guesses_.size(); ++c) {
    Drop(ChunkId(static_cast<int32_t>(c)));
  }
}

void UpdateGuesses::Abandon() {
  DropAll();
  lr_.reset();
}

void UpdateGuesses::EndStep() {
  // What is left is of a step that was skipped.
  missed_ |=
      std::any_of(guesses_.begin(), guesses_.end(),
                  [](const Guess& guess) { return guess.dropped != nullptr; });
  DropAll();
  micro_batches_ = std::max<int64_t>(progress_.micro_batches, 1);
  if (pause_ > 0) --pause_;
  if (missed_) {
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
  } else if (hit_) {
    next_pause_ = 1;
  }
  missed_ = hit_ = false;
  lr_.reset();
}

}  // namespace castor::internal
