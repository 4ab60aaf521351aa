// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/weight_digest.h"

#include <xxhash.h>

#include <algorithm>

namespace castor::gpt {

uint64_t WeightDigest(ParamId param, std::span<const float> values) {
  constexpr size_t kBlock = 64;
  const uint64_t key = static_cast<uint64_t>(param.value()) << 40;
  uint64_t digest = 0;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::span<const float> block =
        values.subspan(begin, std::min(kBlock, values.size() - begin));
    digest += XXH3_64bits_withSeed(block.data(), block.size_bytes(),
                                   key ^ (begin / kBlock));
  }
  return digest;
}

}  // namespace castor::gpt
