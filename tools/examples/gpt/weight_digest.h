// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_WEIGHT_DIGEST_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_WEIGHT_DIGEST_H_

// The digest that ZeroEngine::WeightDigest gives, of plain arrays: the sum, in
// 64 bits, of the XXH3 of every block of 64 fp32 values of a parameter, seeded
// with the parameter and the number of the block. Pure function, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/ids.h"

namespace castor::gpt {

// What one parameter adds to the digest.
uint64_t WeightDigest(ParamId param, std::span<const float> values);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_WEIGHT_DIGEST_H_
