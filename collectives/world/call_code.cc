// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/call_code.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/rank_scope.h"
#include "collectives/world/byte_codec.h"

namespace castor::internal {

Status DamagedMessage(std::string_view what, size_t size) {
  return Internal(fmt::format(
      "{} of {} bytes came that this build does not understand: start the same "
      "build of the program on every rank",
      what, size));
}

std::string EncodeCall(const CollectiveCall& call) {
  ByteWriter writer;
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
  ByteReader reader(bytes);
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
  if (!reader.ended_well()) return DamagedMessage("a call", bytes.size());
  return call;
}

}  // namespace castor::internal
