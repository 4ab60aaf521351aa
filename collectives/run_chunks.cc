// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/run_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"

namespace castor {

std::vector<RunChunkInfo> RunChunksOf(const ChunkLayout& layout,
                                      std::span<const std::string_view> names) {
  constexpr size_t kNamesShown = 3;
  std::vector<RunChunkInfo> chunks;
  chunks.reserve(layout.chunks().size());
  for (const ChunkInfo& info : layout.chunks()) {
    const GroupInfo& group = layout.groups()[static_cast<size_t>(info.group)];
    RunChunkInfo described;
    described.bytes = BytesOf(info.size, group.dtype).count();
    const std::vector<ParamId>& params = info.params;
    for (size_t i = 0; i < std::min(params.size(), kNamesShown); ++i) {
      if (i > 0) described.params += ",";
      described.params += names[params[i].index()];
    }
    if (params.size() > kNamesShown) {
      described.params += fmt::format(",+{}", params.size() - kNamesShown);
    }
    chunks.push_back(std::move(described));
  }
  return chunks;
}

}  // namespace castor
