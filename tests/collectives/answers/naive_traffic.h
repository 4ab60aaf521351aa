// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_ANSWERS_NAIVE_TRAFFIC_H_
#define CASTOR_TESTS_COLLECTIVES_ANSWERS_NAIVE_TRAFFIC_H_

// What one rank moves in a step, reckoned chunk by chunk from the gathers that
// the step makes, without order or time: an oracle for what a simulation counts
// (placement/step_traffic.h). Pure functions, thread-safe.

#include <cstdint>
#include <span>

#include "chunk/chunk_layout.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "collectives/zero_options.h"
#include "placement/step_traffic.h"
#include "placement/trace/step_trace.h"

namespace castor {

struct StepActivity {
  std::span<const int64_t> gathers;  // of the step, by ChunkId
  // By ChunkId: how often its home is read for gathers, or for a copy of the
  // shard that serves several.
  std::span<const int64_t> loads;
  const StepTrace* trace = nullptr;  // of it
  bool norm = false;                 // the global norm is computed
};

// REQUIRES: `memory` was made of the layout and the sharding; every chunk that
// has a gradient in the step has one in its last micro-batch.
StepTraffic NaiveTrafficOf(const ChunkLayout& layout, const Sharding& sharding,
                           const MemoryPlan& memory, const StepActivity& step);
// The same with the gathers and fetches of a simulated step, by ChunkId.
StepTraffic NaiveTrafficOf(const SealForecast& seal, const ZeroOptions& options,
                           const StepTrace& step,
                           std::span<const StepTraffic> by_chunk);

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_ANSWERS_NAIVE_TRAFFIC_H_
