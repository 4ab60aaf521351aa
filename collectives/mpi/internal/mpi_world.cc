// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/mpi_world.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "chunk/base/check.h"
#include "collectives/internal/call_code.h"
#include "offload/start_thread.h"

namespace castor::internal {
namespace {

// Between looks at what the others do. First the thread only gives way, so that
// an answer is met at once, and so is the next operation, which mostly comes
// close behind the last; then it sleeps, because there may be more ranks than
// cores. With no operation under way only the end of the world can come.
constexpr int kBusyPolls = 400;
constexpr int kIdlePolls = 100;
constexpr std::chrono::microseconds kBusyRest(20);
constexpr std::chrono::microseconds kIdleRest(1000);
// After how long without progress last words are made all the same: where cores
// are busy, to give way may take as long as an operation.
constexpr int64_t kWordsNs = 1'000'000;

}  // namespace

std::string ToldToEnd(int rank, int size) {
  return fmt::format("castor: rank {} of {} was told to end (SIGTERM)", rank,
                     size);
}

MpiWorld::Meeting::Meeting(Arrival arrived, const ExchangeSizes& sizes,
                           MpiWire* wire)
    : own(std::move(arrived)),
      encoded(EncodeCall(own.call)),
      exchange(own.position, own.call, own.buffers, sizes, wire),
      came(static_cast<size_t>(wire->world()), false) {}

MpiWorld::MpiWorld(MPI_Comm comm, const MpiWorldOptions& options)
    : options_(options),
      comm_(comm),
      wire_(comm),
      rank_(wire_.rank()),
      size_(wire_.world()),
      peers_(static_cast<size_t>(size_)),
      scratch_(static_cast<size_t>(
          ScratchBytes(size_, options.sizes.segment).count())),
      words_(ToldToEnd(rank_, size_)) {
  SayWords();
  thread_ = StartThread([this] { Run(); });
}

MpiWorld::~MpiWorld() {
  {
    std::lock_guard lock(mutex_);
    leaving_ = give_up_waiting_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

int64_t MpiWorld::Call() {
  std::lock_guard lock(mutex_);
  CASTOR_CHECK(!leaving_);
  return called_++;
}

void MpiWorld::Arrive(int64_t position, const CollectiveCall& call,
                      const RankBuffers& buffers, EventSource done) {
  Status ended;
  {
    std::lock_guard lock(mutex_);
    if (!thread_ended_) {
      inbox_.push_back({position, call, buffers, std::move(done)});
      changed_.notify_all();
      return;
    }
    ended = ended_;
  }
  done.Complete(ended);
}

void MpiWorld::Skip(int64_t position, const CollectiveCall& call) {
  End(SkippedError(position, call, rank_));
  std::lock_guard lock(mutex_);
  ++resolved_;
  changed_.notify_all();
}

void MpiWorld::End(Status reason) {
  CASTOR_CHECK(!reason.ok());
  std::lock_guard lock(mutex_);
  if (ended_.ok()) ended_ = std::move(reason);
  changed_.notify_all();
}

Status MpiWorld::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

CommunicatorStats MpiWorld::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void MpiWorld::Leave() {
  std::lock_guard lock(mutex_);
  leaving_ = true;
  changed_.notify_all();
}

bool MpiWorld::all_left() const {
  std::lock_guard lock(mutex_);
  return thread_ended_ && all_left_;
}

bool MpiWorld::WaitForAllToLeave(int64_t wait_ns) {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return thread_ended_; };
  if (wait_ns < 0) {
    changed_.wait(lock, ended);
  } else if (!changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns),
                                ended)) {
    give_up_waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, ended);
  }
  return all_left_;
}

void MpiWorld::Run() {
  // To sleep for as long as it says, and not for the 50 us more that the kernel
  // takes to wake several threads at once. Without it: as slow as that.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  while (true) {
    bool progressed = TakeArrivals();
    progressed |= HearControl();
    progressed |= wire_.Poll();
    if (!wire_.status().ok()) End(wire_.status());
    progressed |= EndMeetings();
    CheckStalls();
    if (!ending_ && !ended().ok()) {
      BeginEnding();
      progressed = true;
    }
    ShareScratch();
    TellGone();
    if (Finished()) break;
    Rest(progressed);
  }
  // What it said last is of a time that is over.
  if (told_gone_) words_.Hush();
  bool all_left = told_gone_ && wire_.status().ok();
  for (const Peer& peer : peers_) {
    all_left =
        all_left && (peer.gone || &peer == &peers_[static_cast<size_t>(rank_)]);
  }
  // Whoever still has something to say here would say it to the next
  // communicator that MPI gives this one's number.
  if (all_left) MPI_Comm_free(&comm_);
  std::vector<Arrival> late;
  Status ended;
  {
    std::lock_guard lock(mutex_);
    if (ended_.ok() && (!inbox_.empty() || !meetings_.empty())) {
      ended_ = Aborted("the MPI session was closed before the operation");
    }
    ended = ended_;
    std::swap(late, inbox_);
    all_left_ = all_left;
    thread_ended_ = true;
    changed_.notify_all();
  }
  for (auto& [position, meeting] : meetings_) {
    meeting.exchange.Abandon();
    meeting.own.done->Complete(ended);
  }
  meetings_.clear();
  for (const Arrival& each : late) each.done->Complete(ended);
}

bool MpiWorld::TakeArrivals() {
  std::vector<Arrival> arrivals;
  {
    std::lock_guard lock(mutex_);
    std::swap(arrivals, inbox_);
  }
  for (Arrival& arrival : arrivals) Admit(std::move(arrival));
  return !arrivals.empty();
}

void MpiWorld::Admit(Arrival arrival) {
  const int64_t position = arrival.position;
  if (const Status now = ended(); !now.ok()) {
    return Resolve(position, arrival.done, now);
  }
  const auto [place, added] = meetings_.try_emplace(
      position, std::move(arrival), options_.sizes, &wire_);
  CASTOR_CHECK(added);
  latest_ = std::max(latest_, position);
  KeepWordsTrue();
  Meeting& meeting = place->second;
  meeting.since_ns = options_.clock->NowNs();
  news_ = true;
  // Memory for what the others send is there before they hear of it.
  meeting.exchange.Begin();
  for (int i = 1; i < size_; ++i) {
    wire_.SendControl((rank_ + i) % size_,
                      EncodeMessage({.kind = ControlKind::kCall,
                                     .position = position,
                                     .call = meeting.encoded}));
  }
  if (const auto early = early_.find(position); early != early_.end()) {
    for (const auto& [peer, call] : early->second) Meet(meeting, peer, call);
    early_.erase(early);
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peers_[static_cast<size_t>(peer)].left_at > position) continue;
    End(LeftError(position, meeting.own.call, peer));
  }
}

void MpiWorld::ShareScratch() {
  if (has_scratch_ != nullptr) {
    const Exchange& exchange = has_scratch_->exchange;
    if (!exchange.through_with_scratch() &&
        !(exchange.given_up() && exchange.at_rest())) {
      return;
    }
    has_scratch_ = nullptr;
  }
  while (!want_scratch_.empty() && has_scratch_ == nullptr) {
    Meeting* const next = want_scratch_.front();
    want_scratch_.pop_front();
    if (next->exchange.given_up()) continue;
    has_scratch_ = next;
    next->exchange.GiveScratch(scratch_.data());
  }
}

bool MpiWorld::EndMeetings() {
  bool any = false;
  const int64_t now = options_.clock->NowNs();
  const bool out_of_patience = OutOfPatience();
  for (auto place = meetings_.begin(); place != meetings_.end();) {
    auto& [position, meeting] = *place;
    Exchange& exchange = meeting.exchange;
    if (exchange.ended_pieces() != meeting.ended_pieces) {
      meeting.ended_pieces = exchange.ended_pieces();
      meeting.since_ns = now;
      // Another may be the one that it waits for now.
      news_ = true;
    }
    Status how;
    if (exchange.given_up() || out_of_patience || !wire_.status().ok()) {
      bool settled = exchange.at_rest();
      for (int peer = 0; peer < size_; ++peer) {
        const Peer& each = peers_[static_cast<size_t>(peer)];
        settled =
            settled && (peer == rank_ || each.gone || each.end ||
                        meeting.own.call.kind == CollectiveKind::kBarrier);
      }
      if (!settled && !out_of_patience && wire_.status().ok()) {
        ++place;
        continue;
      }
      if (!settled) {
        exchange.GiveUp();
        exchange.Abandon();
      }
      how = ended();
    } else if (meeting.here < size_ || !exchange.done()) {
      ++place;
      continue;
    }
    any = true;
    if (has_scratch_ == &meeting) has_scratch_ = nullptr;
    std::erase(want_scratch_, &meeting);
    const Arrival own = std::move(meeting.own);
    place = meetings_.erase(place);
    if (how.ok()) {
      std::vector<RankBuffers> buffers(static_cast<size_t>(size_));
      buffers[static_cast<size_t>(rank_)] = own.buffers;
      const CommunicatorStats more = Traffic(own.call, rank_, buffers);
      done_above_.insert(own.position);
      while (done_above_.erase(done_below_) > 0) ++done_below_;
      last_ = {own.position, own.call};
      std::lock_guard lock(mutex_);
      stats_.operations += more.operations;
      stats_.bytes_sent += more.bytes_sent;
      stats_.bytes_received += more.bytes_received;
      stats_.bytes_copied += more.bytes_copied;
    }
    Resolve(own.position, own.done, how);
  }
  return any;
}

void MpiWorld::Resolve(int64_t position, const std::optional<EventSource>& done,
                       const Status& status) {
  CASTOR_CHECK_GE(position, 0);
  news_ = true;
  KeepWordsTrue();
  // Before the owner can know: it may leave at once.
  {
    std::lock_guard lock(mutex_);
    ++resolved_;
  }
  done->Complete(status);
}

void MpiWorld::Rest(bool progressed) {
  if (progressed) {
    idle_polls_ = 0;
    return;
  }
  const bool busy = !meetings_.empty();
  if (idle_polls_ < (busy ? kBusyPolls : kIdlePolls)) {
    const int64_t now = options_.clock->NowNs();
    if (idle_polls_++ == 0) idle_since_ns_ = now;
    if (news_ && now - idle_since_ns_ >= kWordsNs) SayWords();
    std::this_thread::yield();
    return;
  }
  // Not before: what is over in no time needs no words.
  if (news_) SayWords();
  std::unique_lock lock(mutex_);
  if (!inbox_.empty() || give_up_waiting_ || (!ended_.ok() && !ending_)) return;
  if (leaving_ && !told_leave_) return;
  changed_.wait_for(lock, busy ? kBusyRest : kIdleRest);
}

}  // namespace castor::internal
