// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_HELD_MOMENTS_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_HELD_MOMENTS_H_

// What a GPT holds at every moment of a micro-batch, for Seal. It is not
// written down but observed, on a model of the same layers with one column, so
// it cannot drift from what the model does. Pure function, thread-safe.

#include <vector>

#include "chunk/base/ids.h"
#include "tools/examples/gpt/gpt_params.h"

namespace castor::gpt {

struct HeldMoment {
  std::vector<ParamId> params;
  std::vector<ParamId> grads;  // opened and not complete

  friend bool operator==(const HeldMoment&, const HeldMoment&) = default;
};

// In order; a moment is whatever newly holds a parameter or opens a gradient.
// `in_place`: gradients are written over parameters. REQUIRES: a valid config.
std::vector<HeldMoment> HeldMoments(const GptConfig& config,
                                    bool in_place = false);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_HELD_MOMENTS_H_
