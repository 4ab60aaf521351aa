// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/missing_grads.h"

#include <cstddef>
#include <cstdint>

namespace castor {

std::vector<MissingGrad> MissingGradsOf(
    const ChunkLayout& layout, const Trace& trace,
    const std::function<bool(ParamId)>& had,
    const std::function<std::string(ParamId)>& name) {
  std::vector<bool> has_grad(layout.chunks().size());
  for (const Access& access : trace) {
    if (access.kind == AccessKind::kGradClose) {
      has_grad[access.chunk.index()] = true;
    }
  }
  std::vector<MissingGrad> missing;
  for (size_t c = 0; c < has_grad.size(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    if (!has_grad[c]) continue;
    for (const ParamId param : layout.chunk(chunk).params) {
      if (!had(param)) missing.push_back({chunk, name(param)});
    }
  }
  return missing;
}

}  // namespace castor
