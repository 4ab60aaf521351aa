// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_INTEGRATION_PLAIN_TRAINING_H_
#define CASTOR_TESTS_INTEGRATION_PLAIN_TRAINING_H_

// Training without Castor, for tests: the example's model and data over plain
// arrays, and AdamW with clipping, scalar and written from the formulas. What a
// Castor run of one rank has to equal bit by bit.

#include <cstdint>
#include <vector>

#include "chunk/base/status.h"
#include "tools/examples/gpt/text_data.h"
#include "tools/examples/gpt/train_options.h"

namespace castor::gpt {

struct PlainOutcome {
  std::vector<double> losses;  // by step, as is the next
  std::vector<double> norms;   // 0 without clipping
  uint64_t digest = 0;         // as ZeroEngine::WeightDigest
};

// fp32 or bf16. REQUIRES: options are valid, of one rank.
Result<PlainOutcome> TrainPlainly(const TrainOptions& options,
                                  const TextData& data);

}  // namespace castor::gpt

#endif  // CASTOR_TESTS_INTEGRATION_PLAIN_TRAINING_H_
