// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_report.h"

#include <algorithm>
#include <cstddef>

#include "chunk/base/dtype.h"

namespace castor {

std::string_view ByteClassTitle(ByteClass kind) {
  switch (kind) {
    case ByteClass::kParams:
      return "parameters";
    case ByteClass::kGrads:
      return "gradients";
    case ByteClass::kMasters:
      return "fp32 masters";
    case ByteClass::kExpAvg:
      return "first moments";
    case ByteClass::kExpAvgSq:
      return "second moments";
    case ByteClass::kRounding:
      return "rounding to slots";
    case ByteClass::kGathered:
      return "gathered chunks";
    case ByteClass::kPrefetch:
      return "fetched ahead";
    case ByteClass::kKept:
      return "copies kept";
    case ByteClass::kStaging:
      return "pinned staging";
    case ByteClass::kNorm:
      return "sums for the norm";
    case ByteClass::kCommunicator:
      return "communicator";
    case ByteClass::kLeases:
      return "borrowed";
  }
  return "unknown";
}

Bytes LargestChunk(const ChunkLayout& layout) {
  Bytes largest;
  for (const GroupInfo& group : layout.groups()) {
    largest = std::max(largest, BytesOf(group.chunk_size, group.dtype));
  }
  return largest;
}

OversizeChunks OversizeOf(const ChunkLayout& layout) {
  OversizeChunks oversize;
  for (const ChunkInfo& chunk : layout.chunks()) {
    if (!chunk.oversize) continue;
    const GroupInfo& group = layout.groups()[static_cast<size_t>(chunk.group)];
    ++oversize.count;
    oversize.largest =
        std::max(oversize.largest, BytesOf(chunk.size, group.dtype));
  }
  return oversize;
}

}  // namespace castor
