// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/nccl/control/control_message.h"

#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "collectives/rank_scope.h"

namespace castor::internal {
namespace {

class Writer {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    Append(&value, sizeof(T));
  }
  void PutBytes(const void* data, size_t size) {
    Put(static_cast<uint32_t>(size));
    Append(data, size);
  }
  void PutText(std::string_view text) { PutBytes(text.data(), text.size()); }
  std::vector<std::byte> Take() {
    const auto length = static_cast<uint32_t>(bytes_.size() - kLengthBytes);
    std::memcpy(bytes_.data(), &length, kLengthBytes);
    return std::move(bytes_);
  }

 private:
  void Append(const void* data, size_t size) {
    const auto* const from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + size);
  }
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kLengthBytes);
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
  T Get() {
    T value = {};
    if (Have(sizeof(T))) {
      std::memcpy(&value, rest_.data(), sizeof(T));
      rest_ = rest_.subspan(sizeof(T));
    }
    return value;
  }
  std::span<const std::byte> GetBytes() {
    const auto size = Get<uint32_t>();
    if (!Have(size)) return {};
    const std::span<const std::byte> bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }
  std::string GetText() {
    const std::span<const std::byte> bytes = GetBytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool complete() const { return ok_ && rest_.empty(); }

 private:
  bool Have(size_t size) {
    if (rest_.size() < size) ok_ = false;
    return ok_;
  }
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace

std::vector<std::byte> Encode(const ControlMessage& message) {
  Writer writer;
  writer.Put(static_cast<uint8_t>(message.kind));
  writer.Put(static_cast<int32_t>(message.rank));
  writer.Put(message.position);
  writer.Put(static_cast<uint8_t>(message.call.kind));
  writer.Put(static_cast<int32_t>(message.call.tag.chunk.value()));
  writer.Put(message.call.tag.moment);
  writer.Put(static_cast<uint8_t>(message.call.tag.scope.among));
  writer.Put(message.call.tag.scope.group);
  writer.Put(message.call.count);
  writer.Put(static_cast<uint8_t>(message.call.dtype));
  writer.Put(static_cast<uint8_t>(message.call.op));
  writer.Put(static_cast<int32_t>(message.call.root));
  writer.Put(static_cast<uint8_t>(message.status.code()));
  writer.PutText(message.text);
  writer.PutText(message.status.message());
  writer.PutBytes(message.payload.data(), message.payload.size());
  return writer.Take();
}

Result<ControlMessage> Decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  ControlMessage message;
  const auto kind = reader.Get<uint8_t>();
  message.rank = reader.Get<int32_t>();
  message.position = reader.Get<int64_t>();
  const auto call_kind = reader.Get<uint8_t>();
  message.call.tag.chunk = ChunkId(reader.Get<int32_t>());
  message.call.tag.moment = reader.Get<int64_t>();
  const auto among = reader.Get<uint8_t>();
  message.call.tag.scope.group = reader.Get<int32_t>();
  message.call.count = reader.Get<int64_t>();
  const auto dtype = reader.Get<uint8_t>();
  const auto op = reader.Get<uint8_t>();
  message.call.root = reader.Get<int32_t>();
  const auto code = reader.Get<uint8_t>();
  message.text = reader.GetText();
  std::string reason = reader.GetText();
  const std::span<const std::byte> payload = reader.GetBytes();
  if (!reader.complete() || kind > static_cast<uint8_t>(ControlKind::kLeave) ||
      call_kind > static_cast<uint8_t>(CollectiveKind::kBarrier) ||
      dtype > static_cast<uint8_t>(DType::kC64) ||
      op > static_cast<uint8_t>(ReduceOp::kMax) ||
      among > static_cast<uint8_t>(Among::kReplicas) ||
      code > static_cast<uint8_t>(ErrorCode::kFailedPrecondition) ||
      message.call.count < 0) {
    return Malformed(
        "a rank's message makes no sense: do all ranks run the "
        "same build of Castor?");
  }
  message.kind = static_cast<ControlKind>(kind);
  message.call.kind = static_cast<CollectiveKind>(call_kind);
  message.call.dtype = static_cast<DType>(dtype);
  message.call.op = static_cast<ReduceOp>(op);
  message.call.tag.scope.among = static_cast<Among>(among);
  if (code != 0) {
    message.status = Status(static_cast<ErrorCode>(code), std::move(reason));
  }
  message.payload.assign(payload.begin(), payload.end());
  return message;
}

}  // namespace castor::internal
