// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/mpi/internal/mpi_world.h"

namespace castor::internal {
namespace {

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

// Whom operations wait for: said after a timeout, and ready to be said when the
// process is told to end.

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

void MpiWorld::SayWords() {
  news_ = false;
  // Its owner has left it, and what others are still to say matters to nobody.
  if (told_gone_) return words_.Hush();
  std::string text = ToldToEnd(rank_, size_);
  WordsWeight weight = WordsWeight::kMatters;
  const Meeting* const waiting =
      StalledMeeting(options_.clock->NowNs(), /*stalled_ns=*/0);
  said_waiting_.reset();
  said_latest_ = latest_;
  if (const Status now = ended(); !now.ok()) {
    text += fmt::format(" after its world had ended: {}", now.message());
  } else if (waiting != nullptr) {
    said_waiting_ = waiting->own.position;
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

void MpiWorld::KeepWordsTrue() {
  const bool under_way = !meetings_.empty();
  words_.At(under_way ? meetings_.begin()->first : latest_, under_way);
  const bool hold = said_waiting_ ? meetings_.contains(*said_waiting_)
                                  : said_latest_ == latest_;
  if (!hold) words_.Outdate();
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

}  // namespace castor::internal
