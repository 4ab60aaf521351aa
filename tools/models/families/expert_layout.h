// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILIES_EXPERT_LAYOUT_H_
#define CASTOR_TOOLS_MODELS_FAMILIES_EXPERT_LAYOUT_H_

// Part of the reader of models (model_reader.h). The two shapes of a
// mixture-of-experts layer with E experts:
//
//   per expert   ...experts.0.gate_proj.weight [M,H]  (or w1)
//                ...experts.0.up_proj.weight   [M,H]  (or w3)
//                ...experts.0.down_proj.weight [H,M]  (or w2), and so
//                for 1..E-1
//   fused        ...experts.gate_up_proj       [E,2M,H]
//                ...experts.down_proj          [E,H,M]
//
// Fused tensors of other forms exist, with biases or the other way around; they
// have one layout only, and none here. Pure functions, thread-safe.

#include <optional>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tools/models/model_list.h"

namespace castor {

// Which layout a list has; mixed lists have that of their first expert tensor.
std::optional<ExpertLayout> FindExpertLayout(
    const std::vector<ParamSpec>& params);

// Rewrites `params` into `layout`: fused tensors stand where their layer's
// first stood, split ones where the fused one stood, expert by expert where a
// layer's two stood together. No change where the list
// has no experts or has that layout already. Malformed where a layer's experts
// are not all there or not all alike, InvalidArgument where fused ones are of
// another form.
Status ApplyExpertLayout(ExpertLayout layout, std::vector<ParamSpec>& params);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILIES_EXPERT_LAYOUT_H_
