// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/record/frame_bytes.h"

#include <xxhash.h>

#include <limits>

#include "chunk/base/check.h"

namespace castor {

std::string_view ByteReader::TakeText(size_t size) {
  if (bytes_.size() < size) {
    failed_ = true;
    return {};
  }
  const std::string_view text = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return text;
}

uint64_t FrameChecksum(uint32_t type, uint32_t length,
                       std::string_view payload) {
  const uint64_t seed = uint64_t{type} << 32 | length;
  return XXH3_64bits_withSeed(payload.data(), payload.size(), seed);
}

FrameBuilder::FrameBuilder(uint32_t type, std::string* out)
    : type_(type), out_(out), start_(out->size()) {
  out_->append(kHeaderBytes, '\0');
}

void FrameBuilder::Finish() {
  const std::string_view payload =
      std::string_view(*out_).substr(start_ + kHeaderBytes);
  CASTOR_CHECK_LE(payload.size(), size_t{std::numeric_limits<uint32_t>::max()});
  const auto length = static_cast<uint32_t>(payload.size());
  const uint64_t checksum = FrameChecksum(type_, length, payload);
  char* header = out_->data() + start_;
  StoreInteger(checksum, StoreInteger(length, StoreInteger(type_, header)));
}

}  // namespace castor
