// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CHECKPOINT_FILES_TENSOR_DIGEST_H_
#define CASTOR_COLLECTIVES_CHECKPOINT_FILES_TENSOR_DIGEST_H_

// Digests of what a checkpoint holds. A tensor's is the sum, in 64 bits, of the
// XXH3 of each block of 64 elements, seeded with the block's number: any ranks
// in any order add up to the same, since no shard border cuts a block. A file's
// is the XXH3 of the bytes before its data and of its tensors' digests, so that
// it covers every byte. Pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"

namespace castor {

inline constexpr int64_t kDigestElements = 64;

// The part of a tensor's digest that `count` elements from element `begin` on
// contribute. REQUIRES: `begin` is a multiple of kDigestElements, and so is
// `begin + count` unless the tensor ends there; elements of whole bytes.
uint64_t DigestOfElements(const void* data, DType dtype, int64_t begin,
                          int64_t count);

// Of a file that begins with `head` and goes on with tensors of these digests,
// in the order of their data.
uint64_t DigestOfFile(std::string_view head, std::span<const uint64_t> tensors);

// 16 hexadecimal digits in lower case, as manifests have them, and back.
std::string DigestText(uint64_t digest);
Result<uint64_t> ParseDigest(std::string_view text);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CHECKPOINT_FILES_TENSOR_DIGEST_H_
