// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_PICK_QUEUE_H_
#define CASTOR_OFFLOAD_LANES_PICK_QUEUE_H_

// Work that waits for turns, such as a lane or a staging slot. Whenever turns
// are free, the most urgent work that is ready gets as many as the work takes.
// The choice is made then, not when work is queued: earliest deadline first,
// for jobs whose arrival nobody knows (Liu and Layland, 1973; here a job that
// runs is not interrupted). Work that is not ready holds no turn, and
// less urgent work passes, but for work that holds its place: who knows that
// all will be ready soon has work begin in the order of the keys. Less urgent
// work never passes work that waits for one turn more.
//
// Each turn serves once; who wants a turn to come again adds the turn again. A
// copyable handle: copies are the same queue. Thread-safe. Part of the lanes
// (lane.h).

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/unique_function.h"
#include "offload/lanes/event.h"
#include "offload/lanes/ring_queue.h"

namespace castor {

enum class PickPlace : uint8_t { kGivesWay, kHolds };

template <typename Turn>
class PickQueue {
 public:
  // `ready`: how the work's own event ended. Called once, by one thread at a
  // time, which must not be held up for long. May add work and turns.
  using Work = UniqueFunction<void(std::span<Turn> turns, const Status& ready)>;

  // Of work that is ready the least key is the most urgent; of equal keys the
  // work that was added first. `turns`: how many the work takes.
  void Add(int64_t key, size_t turns, PickPlace place, const Event& ready,
           Work work) {
    std::pair<int64_t, uint64_t> at(key, 0);
    {
      std::lock_guard lock(state_->mutex);
      at.second = state_->added++;
      if (place == PickPlace::kHolds) state_->waiting.emplace(at, Entry{turns});
    }
    ready.OnDone([state = state_, at, turns,
                  work = std::move(work)](const Status& status) mutable {
      std::unique_lock lock(state->mutex);
      state->waiting.insert_or_assign(
          at, Entry{turns, true, std::move(work), status});
      state->Serve(lock);
    });
  }

  void AddTurn(Turn turn) {
    // Outlives the queue, whose last work may end it.
    const std::shared_ptr<State> state = state_;
    std::unique_lock lock(state->mutex);
    state->free.push_back(std::move(turn));
    state->Serve(lock);
  }

 private:
  struct Entry {
    size_t turns = 0;
    bool ready = false;
    Work work = {};
    Status status = {};
  };
  struct State {
    // Called, and returns, with `lock` held.
    void Serve(std::unique_lock<std::mutex>& lock) {
      if (serving) return;  // whoever serves sees what was added
      serving = true;
      while (!waiting.empty() && waiting.begin()->second.ready &&
             waiting.begin()->second.turns <= free.size()) {
        {
          Entry picked = std::move(waiting.extract(waiting.begin()).mapped());
          std::vector<Turn> turns;
          while (turns.size() < picked.turns) turns.push_back(free.PopFront());
          lock.unlock();
          picked.work(turns, picked.status);
        }
        lock.lock();
      }
      serving = false;
    }

    std::mutex mutex;
    // All guarded by mutex.
    std::map<std::pair<int64_t, uint64_t>, Entry> waiting;  // by key and order
    internal::RingQueue<Turn> free;                         // the longest first
    uint64_t added = 0;
    bool serving = false;
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_PICK_QUEUE_H_
