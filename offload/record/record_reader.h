// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_RECORD_RECORD_READER_H_
#define CASTOR_OFFLOAD_RECORD_RECORD_READER_H_

// Reads a record file: all of it, or what stands before the place where it was
// cut off or damaged. Events come back in the order in which they were written
// and are a prefix of those, never others. Pure functions, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "placement/run_event.h"

namespace castor {

struct RunRecord {
  std::vector<RunRankInfo> ranks;      // ascending, each once
  std::vector<RunArenaInfo> arenas;    // by rank and name, each once
  std::vector<RunPlanInfo> plans;      // ascending by rank, each once
  std::vector<RunHomesInfo> homes;     // as they were written
  std::vector<RunMark> marks;          // as they were written
  std::vector<RunDocument> documents;  // as they were written
  std::vector<RunEvent> events;  // in the order in which they were written
  // The run produced them and the record lacks them: its ring was full.
  int64_t dropped = 0;
  int64_t file_bytes = 0;
  // Ok when this is all that was recorded; otherwise kStoppedEarly with the
  // byte where reading ended, and why.
  Status completeness;

  // Of the lowest rank.
  StateNames states() const {
    return ranks.empty() ? StateNames() : ranks.front().states;
  }
};

// Malformed when the file does not start a record that this version reads;
// InvalidArgument when there is no such file, IoError when it cannot be read.
// Whatever comes after a good header is never an error, see completeness.
//
// Whoever adds up what is returned need not check: each of these fits 62 bits.
// The sum of all bytes moved; the sum of all durations; the time from the first
// to the last event, times the ranks; each number summed over arenas.
Result<RunRecord> ReadRecord(const std::string& path);

// The same from memory.
Result<RunRecord> ParseRecord(std::string_view bytes);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_RECORD_RECORD_READER_H_
