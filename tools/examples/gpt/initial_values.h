// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_INITIAL_VALUES_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_INITIAL_VALUES_H_

// Part of the model (model.h). Random numbers by counter: a value depends on
// the seed and on what it is for, never on who asks or in what order, so that
// any rank can make any range of a parameter. Pure functions, thread-safe.

#include <cstdint>

#include "chunk/base/ids.h"
#include "tools/examples/gpt/gpt_params.h"

namespace castor::gpt {

// 64 random bits for the counter (stream, index).
uint64_t RandomBits(uint64_t seed, uint64_t stream, uint64_t index);

// Elements [begin, end) of the initial values of parameter `id`.
void FillInitialValues(const GptConfig& config, const GptParam& param,
                       ParamId id, uint64_t seed, int64_t begin, int64_t end,
                       float* out);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_INITIAL_VALUES_H_
