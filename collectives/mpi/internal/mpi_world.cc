// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/mpi_world.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "chunk/base/check.h"

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

Status StalledError(int64_t position, const CollectiveCall& call,
                    std::span<const int> peers, int64_t waited_ns) {
  return Aborted(fmt::format(
      "{} stopped amid operation {} of the world, {}: no data for {} s. They "
      "hang or died: look at what they do, or raise the timeout if they are "
      "only slow",
      DescribeRanks(peers), position, Describe(call),
      static_cast<double>(waited_ns) * 1e-9));
}

}  // namespace

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
          ScratchBytes(size_, options.sizes.segment).count())) {
  SayWords();
  thread_ = std::thread([this] { Run(); });
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

bool MpiWorld::HearControl() {
  bool any = false;
  while (std::optional<MpiWire::Control> control = wire_.NextControl()) {
    any = true;
    const Result<ControlMessage> message = DecodeMessage(control->message);
    if (message.ok()) {
      Hear(control->peer, *message);
    } else {
      End(message.status().WithContext(
          fmt::format("from rank {}", control->peer)));
    }
  }
  return any;
}

void MpiWorld::Hear(int peer, const ControlMessage& message) {
  Peer& sender = peers_[static_cast<size_t>(peer)];
  news_ = true;
  switch (message.kind) {
    case ControlKind::kCall: {
      const auto place = meetings_.find(message.position);
      if (place != meetings_.end()) {
        Meet(place->second, peer, message.call);
      } else if (!ending_) {
        early_[message.position].emplace_back(peer, message.call);
      }
      return;
    }
    case ControlKind::kEnd:
      End(message.end.reason);
      sender.end = message.end;
      break;
    case ControlKind::kLeave: {
      sender.left_at = message.position;
      const auto first = meetings_.lower_bound(message.position);
      if (first == meetings_.end()) return;
      return End(LeftError(first->first, first->second.own.call, peer));
    }
    case ControlKind::kGone:
      sender.gone = true;
      break;
    case ControlKind::kAsk:
      // Who has gone says nothing more.
      if (told_gone_) return;
      return wire_.SendControl(
          peer,
          EncodeMessage({.kind = meetings_.empty() ? ControlKind::kIdles
                                                   : ControlKind::kWaits}));
    case ControlKind::kWaits:
    case ControlKind::kIdles:
      sender.waits = message.kind == ControlKind::kWaits;
      return;
  }
  if (!ending_) return;  // BeginEnding will look at it
  for (auto& [position, meeting] : meetings_) {
    // What a rank gives up does not end well here either.
    if (!meeting.exchange.given_up() && !StillEnds(position)) {
      GiveUp(meeting);
    } else {
      Settle(meeting, peer);
    }
  }
}

void MpiWorld::Meet(Meeting& meeting, int peer, const std::string& call) {
  if (meeting.exchange.given_up()) return;
  if (call != meeting.encoded) {
    const Result<CollectiveCall> theirs = DecodeCall(call);
    return End(theirs.ok() ? MismatchError(meeting.own.position, peer, *theirs,
                                           rank_, meeting.own.call)
                           : theirs.status());
  }
  CASTOR_CHECK(!meeting.came[static_cast<size_t>(peer)]);
  meeting.came[static_cast<size_t>(peer)] = true;
  meeting.exchange.PeerCame(peer);
  if (++meeting.here < size_) return;
  meeting.since_ns = options_.clock->NowNs();
  // It is given to operations to which all have come, and to these in the order
  // in which they got there: they wait for nobody who waits for it.
  if (meeting.exchange.wants_scratch()) want_scratch_.push_back(&meeting);
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
  // Before the owner can know: it may leave at once.
  {
    std::lock_guard lock(mutex_);
    ++resolved_;
  }
  done->Complete(status);
}

void MpiWorld::CheckStalls() {
  if (ending_ || meetings_.empty()) return;
  const int64_t now = options_.clock->NowNs();
  if (now < next_stall_check_ns_) return;
  const bool times_out = options_.timeout_ns > 0;
  const int64_t stall_ns =
      times_out ? std::min(options_.timeout_ns, kStallNs) : kStallNs;
  next_stall_check_ns_ =
      now + std::clamp<int64_t>(stall_ns / 16, 100'000, 100'000'000);
  if (StalledMeeting(now, stall_ns) == nullptr) {
    asked_ns_.reset();
    return;
  }
  const bool answered =
      std::all_of(peers_.begin(), peers_.end(),
                  [](const Peer& peer) { return peer.waits.has_value(); });
  // Answers grow old; who gave none will not give a second.
  if (!asked_ns_ || (answered && now - *asked_ns_ >= stall_ns)) {
    return AskOthers(now);
  }
  const Meeting* const late =
      times_out ? StalledMeeting(now, options_.timeout_ns) : nullptr;
  if (late == nullptr || (!answered && now - *asked_ns_ < kAnswerNs)) return;
  const int64_t waited = now - late->since_ns;
  const std::vector<int> blamed = Blamed(WaitedFor(*late));
  if (late->here < size_) {
    return End(
        TimeoutError(late->own.position, late->own.call, blamed, waited));
  }
  End(StalledError(late->own.position, late->own.call, blamed, waited));
}

const MpiWorld::Meeting* MpiWorld::StalledMeeting(int64_t now,
                                                  int64_t stalled_ns) const {
  for (const auto& [position, meeting] : meetings_) {
    if (now - meeting.since_ns < stalled_ns) continue;
    // Or else it waits for the scratch buffer of an operation that stalls.
    if (!WaitedFor(meeting).empty()) return &meeting;
  }
  return nullptr;
}

std::vector<int> MpiWorld::WaitedFor(const Meeting& meeting) const {
  return meeting.here < size_ ? Missing(meeting)
                              : meeting.exchange.PeersWaitedFor();
}

void MpiWorld::AskOthers(int64_t now) {
  asked_ns_ = now;
  for (int peer = 0; peer < size_; ++peer) {
    peers_[static_cast<size_t>(peer)].waits.reset();
  }
  peers_[static_cast<size_t>(rank_)].waits = true;
  Tell({.kind = ControlKind::kAsk});
}

std::vector<int> MpiWorld::Blamed(const std::vector<int>& late) const {
  std::vector<int> blamed;
  for (const int peer : late) {
    if (!peers_[static_cast<size_t>(peer)].waits.value_or(false)) {
      blamed.push_back(peer);
    }
  }
  if (!blamed.empty()) return blamed;
  // They wait for somebody else.
  for (int peer = 0; peer < size_; ++peer) {
    if (!peers_[static_cast<size_t>(peer)].waits.value_or(false)) {
      blamed.push_back(peer);
    }
  }
  return blamed.empty() ? late : blamed;
}

std::vector<int> MpiWorld::Missing(const Meeting& meeting) const {
  std::vector<int> missing;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && !meeting.came[static_cast<size_t>(peer)]) {
      missing.push_back(peer);
    }
  }
  return missing;
}

void MpiWorld::BeginEnding() {
  ending_ = true;
  ended_ns_ = options_.clock->NowNs();
  early_.clear();
  news_ = true;
  for (auto& [position, meeting] : meetings_) {
    if (!StillEnds(position)) meeting.exchange.GiveUp();
  }
  TellEnd();
  for (auto& [position, meeting] : meetings_) {
    for (int peer = 0; peer < size_; ++peer) Settle(meeting, peer);
  }
}

void MpiWorld::TellEnd() {
  // To have gone says as much, and nothing comes after it.
  if (told_gone_) return;
  ControlMessage message{.kind = ControlKind::kEnd};
  message.end.reason = ended();
  message.end.done_below = done_below_;
  message.end.done.assign(done_above_.begin(), done_above_.end());
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    message.end.sent.clear();
    for (const auto& [position, meeting] : meetings_) {
      message.end.sent.push_back(meeting.exchange.SentTo(peer));
    }
    wire_.SendControl(peer, EncodeMessage(message));
  }
}

void MpiWorld::GiveUp(Meeting& meeting) {
  meeting.exchange.GiveUp();
  for (int peer = 0; peer < size_; ++peer) Settle(meeting, peer);
}

void MpiWorld::Settle(Meeting& meeting, int peer) {
  if (peer == rank_ || !meeting.exchange.given_up()) return;
  const Peer& sender = peers_[static_cast<size_t>(peer)];
  const int64_t position = meeting.own.position;
  const SentPieces all = {position, {kAllPieces, kAllPieces}};
  SentPieces sent = {position, {}};
  if (sender.end) {
    for (const SentPieces& each : sender.end->sent) {
      if (each.position == position) sent = each;
    }
    if (sender.end->Did(position)) sent = all;
  } else if (sender.gone) {
    // It ended every operation it had come to.
    if (meeting.came[static_cast<size_t>(peer)]) sent = all;
  } else {
    return;
  }
  meeting.exchange.PeerSends(peer, sent);
}

bool MpiWorld::StillEnds(int64_t position) const {
  bool did = false;
  for (const Peer& peer : peers_) {
    if (!peer.end) {
      did = did || (peer.gone && position < peer.left_at);
    } else if (peer.end->Did(position)) {
      did = true;
    } else {
      const bool will = std::any_of(
          peer.end->sent.begin(), peer.end->sent.end(),
          [&](const SentPieces& sent) {
            return sent.position == position && sent.pieces[0] == kAllPieces;
          });
      if (!will) return false;
    }
  }
  return did;
}

void MpiWorld::Tell(const ControlMessage& message) {
  const std::string encoded = EncodeMessage(message);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) wire_.SendControl(peer, encoded);
  }
}

void MpiWorld::TellGone() {
  if (told_gone_) return;
  int64_t called = 0;
  bool through = false;
  {
    std::lock_guard lock(mutex_);
    if (!leaving_) return;
    called = called_;
    through = resolved_ == called_;
  }
  if (!told_leave_) {
    told_leave_ = true;
    Tell({.kind = ControlKind::kLeave, .position = called});
  }
  if (!through) return;
  told_gone_ = true;
  Tell({.kind = ControlKind::kGone});
}

bool MpiWorld::Finished() const {
  {
    std::lock_guard lock(mutex_);
    if (give_up_waiting_) return true;
  }
  if (!told_gone_) return false;
  bool all_gone = true;
  bool all_answered = true;
  for (int peer = 0; peer < size_; ++peer) {
    const Peer& each = peers_[static_cast<size_t>(peer)];
    if (peer == rank_ || each.gone) continue;
    all_gone = false;
    all_answered = all_answered && each.end.has_value();
  }
  // Who has not answered by now will not leave either.
  if (!all_answered && OutOfPatience()) return true;
  return all_gone && !wire_.sending_control() && !wire_.moving_data();
}

bool MpiWorld::OutOfPatience() const {
  return ending_ && options_.clock->NowNs() - ended_ns_ >= kGraceNs;
}

void MpiWorld::SayWords() {
  news_ = false;
  std::string text = fmt::format(
      "castor: rank {} of {} was told to end (SIGTERM)", rank_, size_);
  WordsWeight weight = WordsWeight::kMatters;
  const Meeting* const waiting =
      StalledMeeting(options_.clock->NowNs(), /*stalled_ns=*/0);
  if (const Status now = ended(); !now.ok()) {
    text += fmt::format(" after its world had ended: {}", now.message());
  } else if (waiting != nullptr) {
    text += fmt::format(
        " while it waited for {} at operation {} of the world, "
        "{}",
        WaitingWords(*waiting), waiting->own.position,
        Describe(waiting->own.call));
  } else {
    weight = WordsWeight::kIdle;
    text += last_ ? fmt::format(
                        " while it waited for no rank, after operation "
                        "{} of the world, {}",
                        last_->first, Describe(last_->second))
                  : " before its first operation";
  }
  words_.Say(text, weight);
}

std::string MpiWorld::WaitingWords(const Meeting& meeting) const {
  const std::vector<int> late = WaitedFor(meeting);
  const char* const what = meeting.here < size_ ? "" : "data of ";
  const std::vector<int> blamed = asked_ns_ ? Blamed(late) : late;
  const bool others =
      std::find(late.begin(), late.end(), blamed.front()) == late.end();
  if (!others) return fmt::format("{}{}", what, DescribeRanks(blamed));
  return fmt::format("{}{}, waiting too, and so for {}", what,
                     DescribeRanks(late), DescribeRanks(blamed));
}

void MpiWorld::Rest(bool progressed) {
  if (progressed) {
    idle_polls_ = 0;
    return;
  }
  const bool busy = !meetings_.empty();
  if (idle_polls_ < (busy ? kBusyPolls : kIdlePolls)) {
    ++idle_polls_;
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
