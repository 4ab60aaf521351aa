// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/control/order_keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "chunk/base/check.h"
#include "collectives/world/data_movement.h"

namespace castor::internal {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The result of an operation on host data, of what each rank brought.
std::vector<std::byte> Combine(const CollectiveCall& call,
                               std::vector<ControlMessage>& messages) {
  if (call.kind == CollectiveKind::kBroadcast) {
    return std::move(messages[static_cast<size_t>(call.root)].payload);
  }
  if (call.kind != CollectiveKind::kAllReduce) return {};
  std::vector<RankBuffers> buffers;
  for (ControlMessage& each : messages) {
    buffers.push_back({each.payload.data(), each.payload.data()});
  }
  for (int rank = 0; rank < static_cast<int>(buffers.size()); ++rank) {
    MoveForRank(call, rank, buffers);
  }
  return std::move(messages.front().payload);
}

}  // namespace

OrderKeeper::OrderKeeper(int world, int64_t timeout_ns,
                         int64_t start_timeout_ns)
    : world_(world),
      timeout_ns_(timeout_ns),
      start_timeout_ns_(start_timeout_ns),
      left_at_(static_cast<size_t>(world), kNever),
      quiet_(static_cast<size_t>(world)) {}

void OrderKeeper::Take(int rank, ControlMessage message, int64_t now_ns) {
  const auto r = static_cast<size_t>(rank);
  switch (message.kind) {
    case ControlKind::kReady:
      return Arrive(rank, std::move(message), now_ns);
    case ControlKind::kEnd:
      return End(std::move(message.status));
    case ControlKind::kQuiet:
      quiet_[r] = true;
      return CheckQuiet();
    case ControlKind::kLeave:
      left_at_[r] = message.position;
      quiet_[r] = true;
      CheckLeft(rank);
      return CheckQuiet();
    default:
      return End(Internal(
          fmt::format("rank {} says to rank 0 what only rank 0 says", rank)));
  }
}

void OrderKeeper::Arrive(int rank, ControlMessage message, int64_t now_ns) {
  if (!ended_.ok()) return;  // it will hear of the end
  const auto r = static_cast<size_t>(rank);
  const int64_t position = message.position;
  Meeting& meeting = waiting_[position];
  if (meeting.arrived == 0) {
    meeting.first_rank = rank;
    meeting.first_ns = now_ns;
    meeting.here.resize(static_cast<size_t>(world_));
    meeting.messages.resize(static_cast<size_t>(world_));
  }
  if (meeting.here[r]) {
    return End(Internal(fmt::format(
        "rank {} comes to operation {} of the world twice", rank, position)));
  }
  meeting.here[r] = true;
  meeting.messages[r] = std::move(message);
  ++meeting.arrived;
  const CollectiveCall call = meeting.messages[r].Call();
  const CollectiveCall first =
      meeting.messages[static_cast<size_t>(meeting.first_rank)].Call();
  if (!SameCall(call, first)) {
    return End(MismatchError(position, rank, call, meeting.first_rank, first));
  }
  for (int other = 0; other < world_; ++other) {
    if (left_at_[static_cast<size_t>(other)] <= position) {
      return End(LeftError(position, call, other));
    }
  }
  if (meeting.arrived < world_) return;
  last_ = fmt::format("operation {}, {}", position, Describe(call));
  verdicts_.push_back({.kind = ControlKind::kGo,
                       .position = position,
                       .payload = Combine(call, meeting.messages)});
  waiting_.erase(position);
}

void OrderKeeper::CheckLeft(int rank) {
  const auto first = waiting_.lower_bound(left_at_[static_cast<size_t>(rank)]);
  if (first == waiting_.end() || !ended_.ok()) return;
  const Meeting& meeting = first->second;
  End(LeftError(
      first->first,
      meeting.messages[static_cast<size_t>(meeting.first_rank)].Call(), rank));
}

void OrderKeeper::Lost(int rank, std::string_view why) {
  const auto r = static_cast<size_t>(rank);
  quiet_[r] = true;
  CheckQuiet();
  if (left_at_[r] != kNever || !ended_.ok()) return;
  left_at_[r] = std::numeric_limits<int64_t>::min();
  const auto missed = std::ranges::find_if(
      waiting_, [r](const auto& each) { return !each.second.here[r]; });
  std::string where = "The world had come to no operation";
  if (missed != waiting_.end()) {
    const Meeting& meeting = missed->second;
    where = fmt::format(
        "It had not come to operation {}, {}", missed->first,
        Describe(
            meeting.messages[static_cast<size_t>(meeting.first_rank)].Call()));
  } else if (!last_.empty()) {
    where = fmt::format("All ranks had come to {}", last_);
  }
  End(Aborted(
      fmt::format("rank {} died, or its host is cut off: its connection to "
                  "rank 0 is gone ({}). {}. Look at that rank's last words",
                  rank, why, where)));
}

void OrderKeeper::CheckTimeout(int64_t now_ns) {
  if (!ended_.ok()) return;
  for (const auto& [position, meeting] : waiting_) {
    const int64_t limit = position < 0 ? start_timeout_ns_ : timeout_ns_;
    const int64_t waited = now_ns - meeting.first_ns;
    if (limit <= 0 || waited < limit) continue;
    std::vector<int> missing;
    for (int rank = 0; rank < world_; ++rank) {
      if (!meeting.here[static_cast<size_t>(rank)]) missing.push_back(rank);
    }
    return End(TimeoutError(
        position,
        meeting.messages[static_cast<size_t>(meeting.first_rank)].Call(),
        missing, waited));
  }
}

void OrderKeeper::End(Status reason) {
  CASTOR_CHECK(!reason.ok());
  if (!ended_.ok()) return;
  ended_ = std::move(reason);
  waiting_.clear();
  verdicts_.push_back({.kind = ControlKind::kEnd, .status = ended_});
  CheckQuiet();
}

void OrderKeeper::CheckQuiet() {
  if (ended_.ok() || told_quiet_ ||
      !std::ranges::all_of(quiet_, [](bool quiet) { return quiet; })) {
    return;
  }
  told_quiet_ = true;
  verdicts_.push_back({.kind = ControlKind::kQuiet});
}

std::vector<ControlMessage> OrderKeeper::TakeVerdicts() {
  return std::exchange(verdicts_, {});
}

}  // namespace castor::internal
