// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_H_
#define CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_H_

// Where chunks of a recorded run were over its steps, what was moved of them
// and why, and who waited for them; and how that is shown. Pure functions,
// thread-safe. Part of castor explain (explain_command.h).

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "tools/cli/document.h"
#include "tools/report/run_statistics.h"
#include "tools/report/run_times.h"

namespace castor {

// Moves of one state of a chunk over one link, all ranks together.
struct ChunkMoves {
  StateKind state = StateKind::kParam;
  LinkId link;
  std::array<int64_t, kRunCauses> count_by_cause = {};
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t ns = 0;  // under way, summed
};

struct ExplainedRunChunk {
  int32_t chunk = 0;
  int64_t bytes = 0;   // of the whole chunk, parameter dtype
  std::string params;  // names, as the record has them
  // Of the steps: how much of their time a gathered copy was there, on all
  // ranks and in each part of a step. A chunk that is at home on the device has
  // none.
  double resident_share = 0;
  std::vector<double> over_step;
  // How often copies came and went, by RunCause.
  std::array<int64_t, kRunCauses> fetched = {};
  std::array<int64_t, kRunCauses> released = {};
  // The copies that were there in the last step that is complete, on the lowest
  // rank, in time since that step began; those that were there before it begin
  // at 0.
  std::vector<Residency> last_step;
  std::vector<ChunkMoves> moves;
  // For this chunk alone, longest first.
  std::vector<StallStatistics> stalls;
  std::vector<std::string> hints;  // what to try against them, by `stalls`
};

struct ExplainedRun {
  int64_t ranks = 0;
  int32_t first_step = 0;  // that were looked at
  int32_t last_step = 0;
  int32_t shown_step = 0;  // of `last_step`; 0: none is complete
  int64_t shown_ns = 0;    // how long it took
  std::vector<ExplainedRunChunk> chunks;
};

// Of the chunks that match: by a parameter's name, as far as the record has it,
// or as chunk.N. InvalidArgument, with the nearest name, where none does, and
// where the record holds none of the steps.
Result<ExplainedRun> ExplainRun(const RunRecord& record,
                                const std::string& pattern,
                                const StepRange& steps);

// castor.run-explanation/1, and lines of --plain:
//   chunk  CHUNK  BYTES  RESIDENT_SHARE  PARAMETERS
//   moves  CHUNK  STATE  LINK  COUNT  BYTES  NS
//   stall  CHUNK  CAUSE  COUNT  NS
Document ExplainedRunDocument(const std::string& file, const ExplainedRun& run);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_EXPLAIN_EXPLAIN_RUN_H_
