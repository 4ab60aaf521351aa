// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_plain.h"

#include <fmt/format.h>

#include "chunk/search_mode.h"

namespace castor {
std::string SearchPlain(const SearchReport& report) {
  std::string text =
      "#group\tmode\tchunk_elements\tchunk_bytes\tchunks\toversize_chunks\t"
      "allocated_elements\twaste_elements\twaste_bytes\twaste_fraction\t"
      "gathered_bytes\treason\n";
  for (const GroupSearchResult& group : report.result.groups) {
    for (const ChunkSizeCandidate& c : group.candidates) {
      text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n",
                          GroupName(group), SearchModeName(c.mode),
                          c.chunk_size.count(), c.chunk_bytes.count(), c.chunks,
                          c.oversize_chunks, c.allocated.count(),
                          c.waste.count(), c.waste_bytes.count(),
                          c.waste_fraction, c.gathered_bytes.count(), c.reason);
    }
  }
  return text;
}

}  // namespace castor
