// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_STATISTICS_STEP_DETAIL_H_
#define CASTOR_TOOLS_REPORT_STATISTICS_STEP_DETAIL_H_

// One step of a recorded run as pictures draw it: what lay on each tier at each
// moment, what each chunk did, what went over each link, who waited. All times
// are nanoseconds from the begin of the step on the rank that began first.
// Pure functions, thread-safe. Part of the statistics of a run
// (run_statistics.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "offload/record/record_reader.h"
#include "placement/homes/homes_file.h"
#include "placement/run_event.h"
#include "tools/report/statistics/intervals.h"
#include "tools/report/statistics/run_setup.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {

// What a chunk does on one rank.
enum class ChunkActivity : uint8_t {
  kFetched,   // its parameters are read from NVMe
  kComing,    // they are on their way to the device
  kReady,     // they are there, ahead of their use
  kUsed,      // the trainer holds them
  kKept,      // they are there, and were used
  kGradient,  // its gradient is reduced or goes home
  kUpdate,    // the optimizer works on it
  kWaited,    // a lane waits for it
};
inline constexpr int kChunkActivities = 8;
std::string_view ChunkActivityName(ChunkActivity activity);

struct ChunkSpan {
  int32_t chunk = 0;
  ChunkActivity activity = ChunkActivity::kComing;
  Interval time;
};

// What lies on a tier for a part of the step only.
enum class PassingKind : uint8_t {
  kGathered,    // whole parameters that are used or were
  kPrefetched,  // whole parameters ahead of their use
  kBorrowed,    // on lease
  kOther,       // staging, gradients in flight, and whatever else is in use
};
inline constexpr int kPassingKinds = 4;
std::string_view PassingKindName(PassingKind kind);

struct TierCourse {
  Tier tier = Tier::kDevice;
  int64_t budget_bytes = 0;  // 0: none given
  std::array<int64_t, kStateKinds> home_bytes = {};
  // From each time to the next, rising.
  std::vector<int64_t> times;
  std::vector<std::array<int64_t, kPassingKinds>> bytes;
};

struct StepPhase {
  std::string_view name;  // "forward", "backward", "update"
  Interval time;
};

struct LinkMove {
  size_t link = 0;  // of StepDetail::links
  Interval time;
  int32_t chunk = 0;
  StateKind state = StateKind::kParam;
  RunCause cause = RunCause::kNone;
  int64_t bytes = 0;
};

struct StallSpan {
  Interval time;
  int32_t chunk = -1;
  RunCause cause = RunCause::kNone;
};

struct RankDetail {
  int32_t rank = 0;
  Interval time;  // of the step
  std::vector<StepPhase> phases;
  std::vector<TierCourse> tiers;
  std::vector<ChunkSpan> spans;  // by chunk, then by begin
  std::vector<LinkMove> moves;   // by begin
  std::vector<StallSpan> stalls;
};

struct StepDetail {
  int32_t step = 0;  // 0: the record has no whole step
  StateNames names = {};
  std::vector<LinkId> links;
  std::vector<RankDetail> ranks;  // ascending, of those that have the step
};

// The step whose time is the median of the complete ones of `steps`, without
// those in which the trace or the plan is made where there are others; 0 where
// none is complete.
int32_t TypicalStep(const RunStatistics& run, const StepRange& steps);

StepDetail ComputeStepDetail(const RunRecord& record, const RunSetup& setup,
                             int32_t step);

// Numbers in arrays, whose meaning the keys beside them say; times shorter than
// a pixel of a wide screen are joined, so that the size is bounded.
JsonValue StepDetailJson(const StepDetail& detail);

// One chunk as pages show it: a name for each of its first parameters, and for
// each state that exists its tier, bytes and reason.
JsonValue ChunkJson(int64_t chunk, Bytes bytes,
                    std::span<const std::string> params,
                    const HomesOfChunk& homes, const StateNames& states);

// All chunks, with their parameters, and their homes in the step on the rank.
JsonValue ChunksJson(const RunRecord& record, const RunSetup& setup,
                     int32_t rank, int32_t step);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_STATISTICS_STEP_DETAIL_H_
