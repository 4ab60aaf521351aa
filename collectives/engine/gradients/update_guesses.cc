// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/gradients/update_guesses.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/base/log.h"

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

bool UpdateGuesses::TakePlaces(ChunkId chunk,
                               std::span<const HomePass::Use> uses) {
  // The guess would be enlisted later, when the spare places may be gone.
  if (memory_.store().staging().OthersWait()) return false;
  guesses_.resize(model_.chunks());
  std::vector<StateKind>& taken = guesses_[chunk.index()].states;
  for (const auto& [state, mode] : uses) {
    if (mode == WindowMode::kRead) continue;
    if (!TakePlace(chunk, state)) {
      GivePlaces(chunk);
      return false;
    }
    taken.push_back(state);
  }
  return true;
}

bool UpdateGuesses::TakePlace(ChunkId chunk, StateKind state) {
  ShardStore& store = memory_.store();
  const StatePlace& place =
      memory_.plan().states[chunk.index()][static_cast<size_t>(state)];
  if (store.home(chunk, state) != place.home) return false;
  const auto take = [&](Tier tier, int32_t slot_class) {
    return slot_class >= 0 &&
           store.TakeAside(chunk, state, tier, slot_class).ok();
  };
  if (take(Tier::kHost, place.host_spare_class)) return true;
  // To the drive and back only for the guess.
  if (place.home != Tier::kNvme && store.WorkWaits()) return false;
  return take(Tier::kNvme, place.nvme_spare_class);
}

void UpdateGuesses::GivePlaces(ChunkId chunk) {
  for (const StateKind state : guesses_[chunk.index()].states) {
    memory_.store().DropAside(chunk, state);
  }
  guesses_[chunk.index()] = Guess();
}

WorkDropped UpdateGuesses::Begin(ChunkId chunk, float factor, double lr) {
  Guess& guess = guesses_[chunk.index()];
  guess.dropped = std::make_shared<std::atomic<bool>>(false);
  guess.factor = factor;
  guess.lr = lr;
  ++begun_;
  return guess.dropped;
}

bool UpdateGuesses::AreThere(ChunkId chunk, std::span<const StateKind> states) {
  for (const StateKind state : states) {
    const Status failed = memory_.store().AsideFailure(chunk, state);
    if (failed.ok()) continue;
    model_.options.log->WarnOnce(
        "guess", fmt::format("new states beside the old ones could not be "
                             "written, so the step updates them again: {}",
                             failed.message()));
    return false;
  }
  return true;
}

bool UpdateGuesses::Settle(ChunkId chunk, float factor, double lr) {
  if (!holds(chunk)) return false;
  Guess& guess = guesses_[chunk.index()];
  const bool right =
      guess.factor == factor && guess.lr == lr && AreThere(chunk, guess.states);
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
  *guesses_[chunk.index()].dropped = true;
  GivePlaces(chunk);
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
