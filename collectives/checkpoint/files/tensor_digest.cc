// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/files/tensor_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <system_error>

#include "chunk/base/check.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

constexpr size_t kDigits = 16;

}  // namespace

uint64_t DigestOfElements(const void* data, DType dtype, int64_t begin,
                          int64_t count) {
  CASTOR_CHECK_EQ(begin % kDigestElements, 0);
  CASTOR_CHECK_EQ(DTypeBits(dtype) % 8, 0);
  const int64_t size = DTypeBits(dtype) / 8;
  const std::byte* bytes = static_cast<const std::byte*>(data);
  uint64_t digest = 0;
  for (int64_t i = 0; i < count; i += kDigestElements) {
    const int64_t elements = std::min(kDigestElements, count - i);
    digest += XXH3_64bits_withSeed(
        bytes + i * size, static_cast<size_t>(elements * size),
        static_cast<uint64_t>((begin + i) / kDigestElements));
  }
  return digest;
}

uint64_t DigestOfFile(std::string_view head,
                      std::span<const uint64_t> tensors) {
  std::string all(head);
  for (const uint64_t tensor : tensors) {
    for (int i = 0; i < 8; ++i) {
      all += static_cast<char>(tensor >> (8 * i) & 0xff);
    }
  }
  return XXH3_64bits(all.data(), all.size());
}

std::string DigestText(uint64_t digest) {
  return fmt::format("{:0{}x}", digest, kDigits);
}

Result<uint64_t> ParseDigest(std::string_view text) {
  uint64_t digest = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  if (error != std::errc() || end != text.data() + text.size() ||
      DigestText(digest) != text) {
    return Malformed(
        fmt::format("{} is no digest of {} hexadecimal digits, all lower case",
                    Quoted(text), kDigits));
  }
  return digest;
}

}  // namespace castor
