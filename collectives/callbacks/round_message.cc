// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/callbacks/round_message.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "collectives/world/byte_codec.h"
#include "collectives/world/call_code.h"
#include "collectives/world/collective_call.h"

namespace castor::internal {
namespace {

constexpr size_t kMostWords = 480;

// How all ranks stand to one operation.
struct Standing {
  std::vector<int> came;  // ranks
  std::vector<CollectiveCall> calls;
  int64_t waited_ns = 0;
};

std::vector<int> Absent(const Standing& standing, int size) {
  std::vector<int> absent;
  for (int rank = 0; rank < size; ++rank) {
    if (std::find(standing.came.begin(), standing.came.end(), rank) ==
        standing.came.end()) {
      absent.push_back(rank);
    }
  }
  return absent;
}

Status Objection(const Standing& standing, int64_t position,
                 std::span<const RoundMessage> messages, int64_t timeout_ns) {
  const std::vector<CollectiveCall>& calls = standing.calls;
  for (size_t i = 1; i < calls.size(); ++i) {
    if (SameCall(calls[0], calls[i])) continue;
    return MismatchError(position, standing.came[i], calls[i], standing.came[0],
                         calls[0]);
  }
  const std::vector<int> absent =
      Absent(standing, static_cast<int>(messages.size()));
  for (const int rank : absent) {
    const int64_t left_at = messages[static_cast<size_t>(rank)].left_at;
    if (left_at >= 0 && left_at <= position) {
      return LeftError(position, calls[0], rank);
    }
  }
  if (!absent.empty() && timeout_ns > 0 && standing.waited_ns >= timeout_ns) {
    return TimeoutError(position, calls[0], absent, standing.waited_ns);
  }
  return OkStatus();
}

}  // namespace

std::string EncodeRound(const RoundMessage& message) {
  ByteWriter writer;
  writer.Put(message.left_at);
  writer.Put(message.reason.code());
  writer.PutText(message.reason.message().substr(0, kMostWords));
  ByteWriter calls;
  uint8_t told = 0;
  for (const CameTo& came : message.came) {
    if (told == kMostCame) break;
    calls.Put(came.position);
    calls.Put(came.waited_ns);
    calls.PutText(came.call);
    ++told;
  }
  writer.Put(told);
  writer.PutText(calls.Take());
  ByteWriter whole;
  whole.PutText(writer.Take());
  std::string bytes = whole.Take();
  // A world that has ended tells of no calls.
  CASTOR_CHECK_LE(bytes.size(), kRoundBytes);
  bytes.resize(kRoundBytes);
  return bytes;
}

Result<RoundMessage> DecodeRound(std::string_view bytes) {
  ByteReader whole(bytes);
  ByteReader reader(whole.GetText());
  RoundMessage message;
  message.left_at = reader.Get<int64_t>();
  const auto code = reader.Get<ErrorCode>();
  const std::string_view reason = reader.GetText();
  const auto told = reader.Get<uint8_t>();
  ByteReader calls(reader.GetText());
  for (uint8_t i = 0; i < told && calls.ok(); ++i) {
    CameTo& came = message.came.emplace_back();
    came.position = calls.Get<int64_t>();
    came.waited_ns = calls.Get<int64_t>();
    came.call = std::string(calls.GetText());
  }
  if (!whole.ok() || !reader.ended_well() || !calls.ended_well()) {
    return DamagedMessage("a message", bytes.size());
  }
  if (code != ErrorCode::kOk)
    message.reason = Status(code, std::string(reason));
  return message;
}

RoundOutcome Judge(std::span<const RoundMessage> messages, int64_t timeout_ns) {
  RoundOutcome outcome;
  outcome.all_left = outcome.all_wait = true;
  std::map<int64_t, Standing> standings;  // by position
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    const RoundMessage& message = messages[rank];
    if (!message.reason.ok()) {
      outcome.end = message.reason;
      return outcome;
    }
    outcome.all_left &= message.left_at >= 0;
    outcome.all_wait &= !message.came.empty();
    for (const CameTo& came : message.came) {
      Standing& standing = standings[came.position];
      Result<CollectiveCall> call = DecodeCall(came.call);
      if (!call.ok()) {
        outcome.end = call.status();
        return outcome;
      }
      standing.came.push_back(static_cast<int>(rank));
      standing.calls.push_back(*call);
      standing.waited_ns = std::max(standing.waited_ns, came.waited_ns);
    }
  }
  for (const auto& [position, standing] : standings) {
    outcome.end = Objection(standing, position, messages, timeout_ns);
    if (!outcome.end.ok()) return outcome;
    if (standing.came.size() == messages.size()) {
      outcome.move = position;
      return outcome;
    }
    outcome.absent[position] =
        Absent(standing, static_cast<int>(messages.size()));
  }
  return outcome;
}

}  // namespace castor::internal
