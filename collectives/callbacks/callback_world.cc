// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/callbacks/callback_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "collectives/world/call_code.h"
#include "offload/lanes/start_thread.h"

namespace castor::internal {
namespace {

constexpr int64_t kRoundNs = 100'000'000;
// Where all ranks wait for operations that others have not come to.
constexpr int64_t kPauseNs = 1'000'000;
// How much longer than the timeout a call of the host's may take: the round in
// which the timeout is told is one of them.
constexpr int64_t kSlackNs = 2'000'000'000;
constexpr int64_t kNever = INT64_MAX;
// How often this rank looks whether it runs at all.
constexpr int64_t kLookNs = 1'000'000'000;
// After how long it matters whom an operation waits for.
constexpr int64_t kStallNs = 250'000'000;

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// How the last words of a rank begin.
std::string ToldToEnd(int rank, int size) {
  return fmt::format("rank {} of {} was told to end (SIGTERM)", rank, size);
}

}  // namespace

CallbackWorld::CallbackWorld(int rank, int size, HostCollectives host,
                             const CallbackOptions& options)
    : rank_(rank),
      size_(size),
      timeout_ns_(options.timeout_ns),
      clock_(options.clock),
      round_ns_(options.timeout_ns > 0
                    ? std::min(kRoundNs, options.timeout_ns / 4 + 1)
                    : kRoundNs),
      calls_(std::move(host), [this](bool calling) { Watch(calling); }),
      exchange_(rank, size, options.exchange_buffer, &calls_),
      words_(ToldToEnd(rank, size)) {
  words_.Say(ToldToEnd(rank, size) + " before its first operation",
             WordsWeight::kIdle);
}

CallbackWorld::~CallbackWorld() {
  if (caller_.joinable()) caller_.join();
  if (watcher_.joinable()) watcher_.join();
}

Status CallbackWorld::Start() {
  looked_ns_ = clock_->NowNs();
  const Status started = OrThreadLimit([this]() -> Status {
    watcher_ = StartThread([this] { WatchCalls(); });
    caller_ = StartThread([this] { MakeCalls(); });
    return OkStatus();
  });
  if (started.ok()) return met_.event().Wait();
  {
    std::lock_guard lock(mutex_);
    calls_over_ = true;
  }
  changed_.notify_all();
  return started;
}

int64_t CallbackWorld::Call() {
  std::lock_guard lock(mutex_);
  return next_++;
}

void CallbackWorld::Arrive(int64_t position, const CollectiveCall& call,
                           const RankBuffers& buffers, EventSource done) {
  Status ended;
  {
    std::lock_guard lock(mutex_);
    ended = ended_;
    if (ended.ok()) {
      arrived_.emplace(position, Arrival{call, buffers, done, clock_->NowNs()});
      news_ = true;
      NoteOperation();
    }
  }
  if (!ended.ok()) return done.Complete(ended);
  changed_.notify_all();
}

void CallbackWorld::Skip(int64_t position, const CollectiveCall& call) {
  End(SkippedError(position, call, rank_));
}

void CallbackWorld::End(Status reason) {
  CASTOR_CHECK(!reason.ok());
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return;
    ended_ = Explained(reason);
    ended_since_ns_ = clock_->NowNs();
  }
  changed_.notify_all();
}

Status CallbackWorld::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

CommunicatorStats CallbackWorld::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void CallbackWorld::Leave() {
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  stopped_.event().Wait().IgnoreError();  // it cannot fail
}

void CallbackWorld::MakeCalls() {
  const Status met = calls_.Barrier();
  // Where the world has ended before, the first reason stays.
  if (!met.ok()) End(met);
  met_.Complete(met.ok() ? met : ended());
  RoundOutcome last;
  while (met.ok() && Round(&last)) continue;
  FailAll();
  {
    std::lock_guard lock(mutex_);
    calls_over_ = true;
  }
  changed_.notify_all();
  stopped_.Complete();
}

RoundMessage CallbackWorld::NextMessage(bool all_wait) {
  std::unique_lock lock(mutex_);
  const auto left = [this] {
    return leaving_ && arrived_.empty() && done_ == next_;
  };
  // A rank that waits for others is in the round before they are: whoever comes
  // next finds it there.
  if (arrived_.empty() || all_wait) {
    changed_.wait_for(
        lock, std::chrono::nanoseconds(arrived_.empty() ? round_ns_ : kPauseNs),
        [&] { return news_ || !ended_.ok() || left(); });
  }
  news_ = false;
  const int64_t now = Look();
  RoundMessage message;
  if (left()) message.left_at = next_;
  message.reason = ended_;
  if (!ended_.ok()) return message;
  for (const auto& [position, arrival] : arrived_) {
    if (message.came.size() == kMostCame) break;
    message.came.push_back(
        {position, EncodeCall(arrival.call), now - arrival.since_ns});
  }
  return message;
}

Result<RoundOutcome> CallbackWorld::Meet(const RoundMessage& own) {
  const std::string sent = EncodeRound(own);
  std::vector<char> all(kRoundBytes * static_cast<size_t>(size_));
  CASTOR_RETURN_IF_ERROR(calls_.AllGather(
      sent.data(), all.data(), Bytes(static_cast<int64_t>(kRoundBytes))));
  std::vector<RoundMessage> messages;
  for (size_t at = 0; at < all.size(); at += kRoundBytes) {
    CASTOR_ASSIGN_OR_RETURN(RoundMessage message,
                            DecodeRound({all.data() + at, kRoundBytes}));
    messages.push_back(std::move(message));
  }
  return Judge(messages, timeout_ns_);
}

bool CallbackWorld::Round(RoundOutcome* last) {
  Result<RoundOutcome> met = Meet(NextMessage(last->all_wait));
  if (!met.ok()) {
    // Where the world has ended before, the first reason stays.
    End(Aborted(std::string(met.status().message())));
    AbortHost(met.status());
    return false;
  }
  *last = *std::move(met);
  {
    std::lock_guard lock(mutex_);
    absent_ = last->absent;
  }
  if (!last->end.ok()) {
    End(last->end);
    return false;
  }
  if (last->all_left) return false;
  if (last->move < 0) return true;
  last->all_wait = false;
  CollectiveCall call;
  RankBuffers buffers;
  {
    std::lock_guard lock(mutex_);
    const Arrival& arrival = arrived_.at(last->move);
    call = arrival.call;
    buffers = arrival.buffers;
    moving_ = last->move;
  }
  const Status moved = exchange_.Move(call, buffers);
  if (!moved.ok()) {
    End(Aborted(fmt::format("operation {}, {}: {}", last->move, Describe(call),
                            moved.message())));
    AbortHost(moved);
    return false;
  }
  Finish(last->move);
  return true;
}

void CallbackWorld::Finish(int64_t position) {
  std::unique_lock lock(mutex_);
  const auto place = arrived_.find(position);
  const Arrival arrival = std::move(place->second);
  arrived_.erase(place);
  ++done_;
  moving_ = -1;
  NoteOperation();
  std::vector<RankBuffers> buffers(static_cast<size_t>(size_));
  buffers[static_cast<size_t>(rank_)] = arrival.buffers;
  const CommunicatorStats more = Traffic(arrival.call, rank_, buffers);
  stats_.operations += more.operations;
  stats_.bytes_sent += more.bytes_sent;
  stats_.bytes_received += more.bytes_received;
  stats_.bytes_copied += more.bytes_copied;
  lock.unlock();
  arrival.done.Complete();
}

void CallbackWorld::FailAll() {
  std::map<int64_t, Arrival> left;
  Status why;
  {
    std::lock_guard lock(mutex_);
    left = std::exchange(arrived_, {});
    why = ended_;
    if (why.ok()) {
      words_.Hush();  // all have left
    } else {
      words_.Say(fmt::format("{} after its world had ended: {}",
                             ToldToEnd(rank_, size_), why.message()),
                 WordsWeight::kMatters);
    }
  }
  for (auto& [position, arrival] : left) {
    arrival.done.Complete(why);
  }
}

void CallbackWorld::Watch(bool calling) {
  {
    std::lock_guard lock(mutex_);
    calling_since_ns_ = calling ? clock_->NowNs() : -1;
  }
  changed_.notify_all();
}

int64_t CallbackWorld::CallEndsNs() const {
  if (calling_since_ns_ < 0 || host_aborted_) return kNever;
  int64_t ends = kNever;
  if (timeout_ns_ > 0) ends = calling_since_ns_ + timeout_ns_ + kSlackNs;
  // The call may be the one that tells the others.
  if (!ended_.ok()) {
    ends =
        std::min(ends, std::max(calling_since_ns_, ended_since_ns_) + kSlackNs);
  }
  return ends;
}

// Ends a call of the host's that takes too long, which is all that helps where
// a process is gone; and says whom an operation waits for.
void CallbackWorld::WatchCalls() {
  std::unique_lock lock(mutex_);
  while (!calls_over_) {
    const int64_t now = Look();
    SayWords(now);
    int64_t wait = kNever;
    if (!arrived_.empty()) wait = kStallNs;
    if (const int64_t ends = CallEndsNs(); ends != kNever) {
      wait = std::min(wait, ends - now);
    }
    if (wait == kNever) {
      changed_.wait(lock);
      continue;
    }
    if (wait > 0) {
      changed_.wait_for(lock,
                        std::chrono::nanoseconds(std::min(wait, kLookNs)));
      continue;
    }
    if (ended_.ok()) ended_ = Explained(CallTimeout(now));
    const Status why = ended_;
    lock.unlock();
    AbortHost(why);
    lock.lock();
  }
}

Status CallbackWorld::CallTimeout(int64_t now) const {
  const std::vector<int> missing = calls_.WaitsFor();
  if (missing.empty() || arrived_.empty()) {
    return Aborted(fmt::format(
        "a call of the host's collectives has not ended in {} ms: a process "
        "is gone or hangs",
        (timeout_ns_ + kSlackNs) / 1'000'000));
  }
  const auto& [position, first] = *HeldUp();
  const int64_t waited = now - calling_since_ns_;
  if (moving_ < 0) return TimeoutError(position, first.call, missing, waited);
  return Aborted(fmt::format(
      "{} stopped amid operation {} of the world, {}: its data has not come in "
      "{:.1f} s. They hang or died: look at what they do, or raise the timeout "
      "if they are only slow",
      DescribeRanks(missing), position, Describe(first.call), Seconds(waited)));
}

std::map<int64_t, CallbackWorld::Arrival>::const_iterator
CallbackWorld::HeldUp() const {
  const auto moves = arrived_.find(moving_);
  return moves == arrived_.end() ? arrived_.begin() : moves;
}

int64_t CallbackWorld::Look() {
  const int64_t now = clock_->NowNs();
  const int64_t gap = now - std::exchange(looked_ns_, now);
  // With a timeout a thread of this rank looks at least so often.
  if (timeout_ns_ == 0 || gap <= kLookNs + kSlackNs) return now;
  stopped_ns_ += gap;
  const auto forget = [&](int64_t* since) {
    *since = std::min(*since + gap, now);
  };
  if (calling_since_ns_ >= 0) forget(&calling_since_ns_);
  forget(&ended_since_ns_);
  for (auto& [position, arrival] : arrived_) forget(&arrival.since_ns);
  return now;
}

Status CallbackWorld::Explained(const Status& why) const {
  if (stopped_ns_ == 0) return why;
  return why.WithContext(fmt::format(
      "rank {} did not run for {:.1f} s, since its process was stopped or its "
      "machine slept",
      rank_, Seconds(stopped_ns_)));
}

std::vector<int> CallbackWorld::WaitsFor(int64_t now) const {
  // A round goes on as long as a rank is absent from an operation; a call that
  // lasts waits for one that does not even say so.
  if (calling_since_ns_ >= 0 && now - calling_since_ns_ >= kStallNs) {
    if (std::vector<int> ranks = calls_.WaitsFor(); !ranks.empty()) {
      return ranks;
    }
  }
  const auto known = absent_.find(HeldUp()->first);
  return known == absent_.end() ? std::vector<int>() : known->second;
}

void CallbackWorld::NoteOperation() {
  const bool under_way = !arrived_.empty();
  words_.At(under_way ? arrived_.begin()->first : next_ - 1, under_way);
  words_.Outdate();
}

void CallbackWorld::SayWords(int64_t now) {
  if (arrived_.empty() || !ended_.ok()) return;
  const auto& [position, first] = *HeldUp();
  if (now - first.since_ns < kStallNs) return;
  const std::vector<int> ranks = WaitsFor(now);
  words_.Say(
      fmt::format("{} while it waited{}{} at operation {} of the world, {}",
                  ToldToEnd(rank_, size_),
                  ranks.empty()  ? ""
                  : moving_ >= 0 ? " for data of "
                                 : " for ",
                  ranks.empty() ? std::string() : DescribeRanks(ranks),
                  position, Describe(first.call)),
      WordsWeight::kMatters);
}

void CallbackWorld::AbortHost(const Status& why) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(host_aborted_, true)) return;
  }
  calls_.Abort(std::string(why.message()).c_str());
}

}  // namespace castor::internal
