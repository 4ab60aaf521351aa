// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_INTEGRATION_STEP_BLOCKS_H_
#define CASTOR_TESTS_INTEGRATION_STEP_BLOCKS_H_

// A GPT described for placement/step_model.h: which parameters model.cc holds
// and which gradients it opens, operation by operation, so that a step's trace
// is known without a step. Pure function, thread-safe.

#include <vector>

#include "placement/step_model.h"
#include "tools/examples/gpt/gpt_params.h"

namespace castor::gpt {

// REQUIRES: a valid config.
std::vector<ModelBlock> StepBlocks(const GptConfig& config);

}  // namespace castor::gpt

#endif  // CASTOR_TESTS_INTEGRATION_STEP_BLOCKS_H_
