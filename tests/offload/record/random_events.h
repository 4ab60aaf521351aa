// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_OFFLOAD_RECORD_RANDOM_EVENTS_H_
#define CASTOR_TESTS_OFFLOAD_RECORD_RANDOM_EVENTS_H_

// Events and ranks with every field set at random, within what a record may
// hold. Pure functions of their generator.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/tier.h"
#include "placement/run_event.h"

namespace castor {

inline RunEvent RandomEvent(std::mt19937_64& random) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  RunEvent event;
  event.begin_ns = below(int64_t{1} << 50) - (int64_t{1} << 49);
  event.end_ns = event.begin_ns + below(1'000'000'000);
  event.bytes = below(int64_t{1} << 36);
  event.rank = static_cast<int32_t>(below(8));
  event.step = static_cast<int32_t>(below(100));
  event.moment = static_cast<int32_t>(below(1000)) - 1;
  event.chunk = static_cast<int32_t>(below(64)) - 1;
  event.kind = static_cast<RunEventKind>(below(kRunEventKinds));
  event.cause = static_cast<RunCause>(below(kRunCauses));
  event.state = static_cast<StateKind>(below(kStateKinds));
  event.from = kAllTiers[static_cast<size_t>(below(3))];
  event.to = kAllTiers[static_cast<size_t>(below(3))];
  return event;
}

inline std::vector<RunEvent> RandomEvents(std::mt19937_64& random,
                                          size_t count) {
  std::vector<RunEvent> events(count);
  for (RunEvent& event : events) event = RandomEvent(random);
  return events;
}

// Rank `rank` of `world` with `chunks` chunks of different sizes and names.
inline RunRankInfo SomeRank(int32_t rank, int32_t world, int chunks) {
  RunRankInfo info;
  info.rank = rank;
  info.world = world;
  info.stage = 3;
  info.budget_bytes[0] = 64 << 20;
  info.budget_bytes[1] = 96 << 20;
  for (int i = 0; i < chunks; ++i) {
    info.chunks.push_back({(i + 1) * 4096, "h." + std::to_string(i) + ".attn"});
  }
  return info;
}

// An arena of rank `rank` whose numbers all differ.
inline RunArenaInfo SomeArena(int32_t rank, const std::string& name) {
  RunArenaInfo info;
  info.rank = rank;
  info.name = name;
  info.allocator = "jemalloc 5.3.0";
  info.locked = true;
  info.budget_bytes = 1 << 20;
  info.in_use_bytes = 2;
  info.peak_bytes = 3;
  info.requested_bytes = 4;
  info.buffers = 5;
  info.allocated = 6;
  info.refused = 7;
  info.live_bytes = 8;
  info.active_bytes = 9;
  info.resident_bytes = 10;
  info.retained_bytes = 11;
  info.metadata_bytes = 12 + rank;
  return info;
}

// A plan of rank `rank` for slots of two sizes, one of them without prices.
inline RunPlanInfo SomePlan(int32_t rank) {
  RunPlanInfo info;
  info.rank = rank;
  info.step = 1;
  info.in_seconds = true;
  info.moments = 40;
  info.classes.resize(2);
  info.classes[0] = {
      4096, 7, 0, 0, 0.25, 0.125, false, true, {{3, 0.5}, {17, 0}}};
  info.classes[1] = {512, 1, 0, 0, 0, 0, true, false, {}};
  return info;
}

// The same events crowded in time, with ties, many of them of prefetches.
inline void Crowd(std::mt19937_64& random, std::vector<RunEvent>* events) {
  for (RunEvent& event : *events) {
    event.begin_ns %= 100'000;
    event.end_ns = event.begin_ns + static_cast<int64_t>(random() % 20'000);
    if (random() % 4 == 0) event.end_ns = event.begin_ns;
    if (random() % 2 == 0) event.cause = RunCause::kPrefetch;
  }
}

}  // namespace castor

#endif  // CASTOR_TESTS_OFFLOAD_RECORD_RANDOM_EVENTS_H_
