// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/control_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "collectives/rank_scope.h"

namespace castor::internal {
namespace {

class Writer {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutText(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what a Writer wrote; once something is missing, ok() is false and
// everything else is zero.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Get() {
    T value{};
    if (bytes_.size() < sizeof(value)) {
      ok_ = false;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
    return value;
  }
  std::string_view GetText() {
    const size_t size = Get<uint32_t>();
    if (bytes_.size() < size) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const std::string_view text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return text;
  }
  // Everything was there, and nothing is left.
  bool ended_well() const { return ok_ && bytes_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

Status Damaged(std::string_view what, size_t size) {
  return Internal(fmt::format(
      "{} of {} bytes came that this build does not understand: start the same "
      "build of the program on every rank",
      what, size));
}

}  // namespace

bool EndNotice::Did(int64_t position) const {
  return position < done_below ||
         std::find(done.begin(), done.end(), position) != done.end();
}

std::string EncodeCall(const CollectiveCall& call) {
  Writer writer;
  writer.Put(call.kind);
  writer.Put(call.dtype);
  writer.Put(call.op);
  writer.Put(int32_t{call.root});
  writer.Put(call.tag.chunk.value());
  writer.Put(call.tag.moment);
  writer.Put(call.tag.scope.among);
  writer.Put(call.tag.scope.group);
  writer.Put(call.count);
  writer.PutText(call.tag.purpose);
  return writer.Take();
}

Result<CollectiveCall> DecodeCall(std::string_view bytes) {
  Reader reader(bytes);
  CollectiveCall call;
  call.kind = reader.Get<CollectiveKind>();
  call.dtype = reader.Get<DType>();
  call.op = reader.Get<ReduceOp>();
  call.root = reader.Get<int32_t>();
  call.tag.chunk = ChunkId(reader.Get<int32_t>());
  call.tag.moment = reader.Get<int64_t>();
  call.tag.scope.among = reader.Get<Among>();
  call.tag.scope.group = reader.Get<int32_t>();
  call.count = reader.Get<int64_t>();
  call.tag.purpose = reader.GetText();
  if (!reader.ended_well()) return Damaged("a call", bytes.size());
  return call;
}

std::string EncodeMessage(const ControlMessage& message) {
  Writer writer;
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
  Reader reader(bytes);
  ControlMessage message;
  message.kind = reader.Get<ControlKind>();
  message.position = reader.Get<int64_t>();
  message.call = std::string(reader.GetText());
  if (message.kind == ControlKind::kEnd) {
    const auto code = reader.Get<ErrorCode>();
    const std::string_view reason = reader.GetText();
    if (code == ErrorCode::kOk) return Damaged("a message", bytes.size());
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
  if (!reader.ended_well()) return Damaged("a message", bytes.size());
  return message;
}

}  // namespace castor::internal
