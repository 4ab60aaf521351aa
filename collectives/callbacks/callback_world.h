// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_WORLD_H_
#define CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_WORLD_H_

// Part of the callback communicator (callback_communicator.h).
//
// One rank's end of the rounds. Operations are numbered in the order of the
// calls, and each is done once all ranks have come to it. A thread makes the
// host's calls, another one ends those that take too long, and keeps the last
// words (last_words.h). Thread-safe. Held by the communicator and by operations
// in flight.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/callbacks/callback_communicator.h"
#include "collectives/callbacks/callback_exchange.h"
#include "collectives/callbacks/round_message.h"
#include "collectives/callbacks/words_slot.h"
#include "collectives/communicator.h"
#include "collectives/world/collective_call.h"
#include "collectives/world/data_movement.h"
#include "offload/lanes/event.h"

namespace castor::internal {

class CallbackWorld {
 public:
  CallbackWorld(int rank, int size, HostCollectives host,
                const CallbackOptions& options);
  ~CallbackWorld();
  CallbackWorld(const CallbackWorld&) = delete;
  CallbackWorld& operator=(const CallbackWorld&) = delete;

  // Starts the threads, and waits until they have met the other ranks' in the
  // host's barrier. Once.
  Status Start();

  int rank() const { return rank_; }
  int size() const { return size_; }
  Bytes buffer_bytes() const { return exchange_.buffer_bytes(); }

  // The number of this rank's next operation; each is to be brought by Arrive
  // or reported by Skip. Owner thread only.
  int64_t Call();
  void Arrive(int64_t position, const CollectiveCall& call,
              const RankBuffers& buffers, EventSource done);
  void Skip(int64_t position, const CollectiveCall& call);

  // The first reason stays. REQUIRES: !reason.ok().
  void End(Status reason);
  Status ended() const;
  CommunicatorStats stats() const;

  // No further calls come. Blocks until all ranks have left, or the world has
  // ended.
  void Leave();

 private:
  struct Arrival {
    CollectiveCall call;
    RankBuffers buffers;
    EventSource done;
    int64_t since_ns = 0;
  };

  // The barrier, and then rounds to the end of the world.
  void MakeCalls();
  // What this rank says; waits a while for something to say. `all_wait`: no
  // other rank does, so the round does not wait by itself.
  RoundMessage NextMessage(bool all_wait);
  // Whether another round follows.
  bool Round(RoundOutcome* last);
  Result<RoundOutcome> Meet(const RoundMessage& own);
  void Finish(int64_t position);
  void FailAll();

  // Of the host's calls: when one begins and when it has ended.
  void Watch(bool calling);
  void WatchCalls();
  // When the call under way is ended. REQUIRES: mutex_ is held.
  int64_t CallEndsNs() const;
  void AbortHost(const Status& why);
  // Of a call that has taken too long. REQUIRES: mutex_ is held.
  Status CallTimeout(int64_t now) const;
  // The operation that others hold up: whose data is on its way, else the
  // first. REQUIRES: mutex_ is held, an operation has arrived.
  std::map<int64_t, Arrival>::const_iterator HeldUp() const;
  // The ranks that it waits for, as far as is known. REQUIRES: as above.
  std::vector<int> WaitsFor(int64_t now) const;
  // After an operation has begun or ended; where one has lasted. REQUIRES:
  // mutex_ is held.
  void NoteOperation();
  // The time. Where nobody of this rank has looked for long, its process did
  // not run, and that time counts against nobody. REQUIRES: mutex_ is held.
  int64_t Look();
  // `why`, and whether this rank was stopped. REQUIRES: mutex_ is held.
  Status Explained(const Status& why) const;
  void SayWords(int64_t now);

  const int rank_;
  const int size_;
  const int64_t timeout_ns_;
  const Clock* const clock_;
  const int64_t round_ns_;  // how long a rank without an operation waits
  HostCalls calls_;
  CallbackExchange exchange_;
  const EventSource met_;      // the others, or not
  const EventSource stopped_;  // no further call is made

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::map<int64_t, Arrival> arrived_;  // by position
  int64_t next_ = 0;                    // of Call
  int64_t done_ = 0;                    // operations
  bool news_ = false;                   // something came since the last round
  bool leaving_ = false;
  Status ended_;
  int64_t ended_since_ns_ = 0;
  bool host_aborted_ = false;
  bool calls_over_ = false;        // and so there is nothing to watch
  int64_t calling_since_ns_ = -1;  // -1: no call of the host's is under way
  int64_t moving_ = -1;  // the operation whose data is on its way; -1: none
  int64_t looked_ns_ = 0;
  int64_t stopped_ns_ = 0;  // how long this process did not run
  // As the last round left it.
  std::map<int64_t, std::vector<int>> absent_;
  WordsSlot words_;
  CommunicatorStats stats_;
  // Set by Start and joined by the destructor.
  std::thread caller_;
  std::thread watcher_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_CALLBACKS_CALLBACK_WORLD_H_
