// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STATISTICS_RUN_SETUP_H_
#define CASTOR_TOOLS_REPORT_STATISTICS_RUN_SETUP_H_

// The documents of a record, read: which model ran, with which options, what a
// step accesses, where chunks are at home. Records of before there were
// documents have none. Pure functions, thread-safe.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/layout_file.h"
#include "collectives/zero_options.h"
#include "offload/record/record_reader.h"
#include "placement/homes/homes_file.h"
#include "placement/tier_model.h"
#include "placement/trace/trace_file.h"

namespace castor {

struct RunSetup {
  std::optional<LayoutFile> layout;
  std::optional<ZeroOptions> options;   // as of the last step; no machine
  std::optional<TierModel> machine;     // that the run was told of
  std::map<int32_t, TraceFile> traces;  // by rank; no compute times
  // By rank and the step from which on they hold.
  std::map<std::pair<int32_t, int32_t>, std::vector<HomesOfChunk>> homes;
  // A sentence for each document that could not be read.
  std::vector<std::string> unread;

  // Of the rank in the step; empty where the record has none.
  std::span<const HomesOfChunk> HomesIn(int32_t rank, int32_t step) const;
  // The step's accesses as this rank made them, or another where it has none.
  const TraceFile* TraceOf(int32_t rank) const;
};

RunSetup ReadSetup(const RunRecord& record);

// The names of all parameters of each chunk: of the layout, else as far as the
// record's ranks have them.
std::vector<std::vector<std::string>> ParamsByChunk(const RunRecord& record,
                                                    const RunSetup& setup);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STATISTICS_RUN_SETUP_H_
