// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_TRAINER_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_TRAINER_H_

// Training without Castor: the same model and data over plain arrays and an
// optimizer of its own, in one thread. Thread-safe.

#include <cstdint>
#include <span>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/training.h"

namespace castor::gpt {

// Blocks. InvalidArgument for more than one rank.
Result<TrainOutcome> TrainReference(const TrainOptions& options,
                                    const TextData& data,
                                    const TrainHooks& hooks);

// What one parameter adds to the digest that ZeroEngine::WeightDigest gives, of
// plain arrays: the sum, in 64 bits, of the XXH3 of every block of 64 fp32
// values, seeded with the parameter and the number of the block.
uint64_t WeightDigest(ParamId param, std::span<const float> values);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_REFERENCE_TRAINER_H_
