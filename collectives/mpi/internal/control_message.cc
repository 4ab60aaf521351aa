// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/control_message.h"

#include <algorithm>

#include "collectives/internal/byte_codec.h"
#include "collectives/internal/call_code.h"

namespace castor::internal {

bool EndNotice::Did(int64_t position) const {
  return position < done_below ||
         std::find(done.begin(), done.end(), position) != done.end();
}

std::string EncodeMessage(const ControlMessage& message) {
  ByteWriter writer;
  writer.Put(message.kind);
  writer.Put(message.position);
  writer.PutText(message.call);
  if (message.kind != ControlKind::kEnd) return writer.Take();
  const EndNotice& end = message.end;
  writer.Put(end.reason.code());
  writer.PutText(end.reason.message());
  writer.Put(end.done_below);
  writer.Put(static_cast<uint32_t>(end.done.size()));
  for (const int64_t position : end.done) writer.Put(position);
  writer.Put(static_cast<uint32_t>(end.sent.size()));
  for (const SentPieces& sent : end.sent) {
    writer.Put(sent.position);
    for (const int64_t pieces : sent.pieces) writer.Put(pieces);
  }
  return writer.Take();
}

Result<ControlMessage> DecodeMessage(std::string_view bytes) {
  ByteReader reader(bytes);
  ControlMessage message;
  message.kind = reader.Get<ControlKind>();
  message.position = reader.Get<int64_t>();
  message.call = std::string(reader.GetText());
  if (message.kind == ControlKind::kEnd) {
    const auto code = reader.Get<ErrorCode>();
    const std::string_view reason = reader.GetText();
    if (code == ErrorCode::kOk)
      return DamagedMessage("a message", bytes.size());
    message.end.reason = Status(code, std::string(reason));
    message.end.done_below = reader.Get<int64_t>();
    for (auto i = reader.Get<uint32_t>(); i > 0 && reader.ok(); --i) {
      message.end.done.push_back(reader.Get<int64_t>());
    }
    for (auto i = reader.Get<uint32_t>(); i > 0 && reader.ok(); --i) {
      SentPieces& sent = message.end.sent.emplace_back();
      sent.position = reader.Get<int64_t>();
      for (int64_t& pieces : sent.pieces) pieces = reader.Get<int64_t>();
    }
  }
  if (!reader.ended_well()) return DamagedMessage("a message", bytes.size());
  return message;
}

}  // namespace castor::internal
