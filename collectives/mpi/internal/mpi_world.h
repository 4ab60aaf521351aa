// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_INTERNAL_MPI_WORLD_H_
#define CASTOR_COLLECTIVES_MPI_INTERNAL_MPI_WORLD_H_

// One rank's side of a world of processes: a thread that makes all MPI calls
// about it. Operations are numbered in the order of the calls; a rank that
// comes to one tells every other what it calls, and the data goes between two
// ranks once each knows that the other calls the same (exchange.h). So a rank
// that departs is found out by whoever hears of it.
//
// The end of the world is told to all, with what had been sent for operations
// that are given up, so that each takes or cancels what is on its way to it and
// fails its operations only then. An operation that has ended well on the
// teller ends well here too: every rank had come to it. A rank that does not
// answer holds the others up for kGraceNs; what it still may read or MPI still
// may write of an operation under way is then left to MPI until the process
// ends.
//
// An operation that takes long has its rank ask the others whether they wait
// too: those that do are not to blame, though they come late; those that do not
// answer, or wait for nobody, are. The last words (last_words.h) name them, and
// so does the error once the timeout is over.
//
// Thread-safe; held by communicators, by operations in flight, and by its
// thread until every rank has left.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/internal/collective_call.h"
#include "collectives/internal/data_movement.h"
#include "collectives/mpi/internal/control_message.h"
#include "collectives/mpi/internal/exchange.h"
#include "collectives/mpi/internal/mpi_wire.h"
#include "collectives/mpi/internal/words_slot.h"
#include "offload/event.h"

namespace castor::internal {

// How long the end of a world waits for ranks that do not answer.
inline constexpr int64_t kGraceNs = 2'000'000'000;
// After how long an operation takes long.
inline constexpr int64_t kStallNs = 250'000'000;
// How long a rank that asks who waits waits for the answers.
inline constexpr int64_t kAnswerNs = 500'000'000;

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// How the last words of a rank begin.
std::string ToldToEnd(int rank, int size);

struct MpiWorldOptions {
  int64_t timeout_ns = 0;  // 0: none
  ExchangeSizes sizes;
  const Clock* clock = nullptr;  // outlives the world
};

class MpiWorld {
 public:
  // Takes `comm` over. REQUIRES: MPI_THREAD_MULTIPLE.
  MpiWorld(MPI_Comm comm, const MpiWorldOptions& options);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Bytes buffer_bytes() const { return Bytes(std::ssize(scratch_)); }

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

  // No further calls come. The thread ends when everybody has left.
  void Leave();
  // Blocks until the thread has ended, or for `wait_ns` (negative: for ever).
  // Whether all ranks have left.
  bool WaitForAllToLeave(int64_t wait_ns);
  // The thread has ended after that.
  bool all_left() const;

 private:
  struct Arrival {
    int64_t position = 0;
    CollectiveCall call;
    RankBuffers buffers;
    std::optional<EventSource> done;
  };
  // An operation that this rank has come to.
  struct Meeting {
    Meeting(Arrival arrived, const ExchangeSizes& sizes, MpiWire* wire);

    Arrival own;
    std::string encoded;
    Exchange exchange;
    std::vector<bool> came;  // by rank
    int here = 1;
    int64_t since_ns = 0;  // arrived, or last sign of life once all are here
    int64_t ended_pieces = 0;
  };
  struct Peer {
    bool gone = false;
    std::optional<bool> waits;  // as it answered
    std::optional<EndNotice> end;
    int64_t left_at = kNever;  // the first position it does not come to
  };

  // All of these: the thread.
  void Run();
  bool TakeArrivals();
  void Admit(Arrival arrival);
  bool HearControl();
  void Hear(int peer, const ControlMessage& message);
  void Meet(Meeting& meeting, int peer, const std::string& call);
  void ShareScratch();
  bool EndMeetings();
  void CheckStalls();
  // The first operation without progress for as long that waits for ranks; null
  // where none does.
  const Meeting* StalledMeeting(int64_t now, int64_t stalled_ns) const;
  // Ranks that have not come to it, or else owe it data.
  std::vector<int> WaitedFor(const Meeting& meeting) const;
  void AskOthers(int64_t now);
  // Of `late`, those who are to blame for it, as far as is known.
  std::vector<int> Blamed(const std::vector<int>& late) const;
  void BeginEnding();
  void GiveUp(Meeting& meeting);
  std::vector<int> Missing(const Meeting& meeting) const;
  // What is known of what `peer` sends for an operation that is given up.
  void Settle(Meeting& meeting, int peer);
  void Resolve(int64_t position, const std::optional<EventSource>& done,
               const Status& status);
  // An operation under way when the world ends: whether it ends well, because
  // it has on another rank, and no rank gives it up.
  bool StillEnds(int64_t position) const;
  void Tell(const ControlMessage& message);
  void TellEnd();
  void TellGone();
  bool Finished() const;
  // Ranks that have not answered the end of the world are not waited for now.
  bool OutOfPatience() const;
  void SayWords();
  // After an operation has begun or ended: what was said holds no longer than
  // it is true.
  void KeepWordsTrue();
  // The ranks that `meeting` waits for, as words.
  std::string WaitingWords(const Meeting& meeting) const;
  void Rest(bool progressed);

  const MpiWorldOptions options_;
  MPI_Comm comm_;
  MpiWire wire_;
  const int rank_;
  const int size_;

  // The thread's.
  std::map<int64_t, Meeting> meetings_;
  // Calls of others at positions that this rank has not come to.
  std::map<int64_t, std::vector<std::pair<int, std::string>>> early_;
  std::vector<Peer> peers_;
  std::vector<std::byte> scratch_;
  std::deque<Meeting*> want_scratch_;
  Meeting* has_scratch_ = nullptr;
  int64_t done_below_ = 0;  // positions that ended well
  std::set<int64_t> done_above_;
  std::optional<std::pair<int64_t, CollectiveCall>> last_;  // to end well
  bool ending_ = false;
  int64_t ended_ns_ = 0;
  bool told_leave_ = false;
  bool told_gone_ = false;
  int64_t next_stall_check_ns_ = 0;
  std::optional<int64_t> asked_ns_;  // of the stall that lasts
  int idle_polls_ = 0;
  int64_t idle_since_ns_ = 0;
  int64_t latest_ = -1;  // position that this rank has come to
  bool news_ = true;     // for the last words
  // Of which they are: the operation that waits, or else the latest at the
  // time.
  std::optional<int64_t> said_waiting_;
  int64_t said_latest_ = -1;
  WordsSlot words_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::vector<Arrival> inbox_;
  Status ended_;
  CommunicatorStats stats_;
  int64_t called_ = 0;
  int64_t resolved_ = 0;
  bool leaving_ = false;
  bool give_up_waiting_ = false;  // for others to leave
  bool thread_ended_ = false;
  bool all_left_ = false;

  std::thread thread_;  // last: it uses the rest
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MPI_INTERNAL_MPI_WORLD_H_
