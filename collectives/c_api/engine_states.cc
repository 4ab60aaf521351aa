// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What an engine holds, through the C ABI: values, checkpoints, figures.

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine_handle.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/c_api/turn.h"
#include "collectives/zero_engine.h"
#include "placement/trace_file.h"

namespace castor::c_api {
namespace {

Status GetStats(const castor_engine& engine, castor_engine_stats* given) {
  if (given == nullptr) return InvalidArgument("stats is null");
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const EngineStats now = engine.engine->stats();
  const size_t device = TierIndex(Tier::kDevice);
  const size_t host = TierIndex(Tier::kHost);
  const size_t nvme = TierIndex(Tier::kNvme);
  castor_engine_stats stats = {};
  stats.device_budget_bytes = now.tiers[device].budget.count();
  stats.device_peak_bytes = now.tiers[device].peak.count();
  stats.host_budget_bytes = now.tiers[host].budget.count();
  stats.host_peak_bytes = now.tiers[host].peak.count();
  stats.nvme_peak_bytes = now.tiers[nvme].peak.count();
  stats.host_to_device_bytes = now.moved[host][device].count();
  stats.device_to_host_bytes = now.moved[device][host].count();
  stats.nvme_read_bytes =
      (now.moved[nvme][device] + now.moved[nvme][host]).count();
  stats.nvme_written_bytes =
      (now.moved[device][nvme] + now.moved[host][nvme]).count();
  stats.wire_sent_bytes = now.wire_sent.count();
  stats.gathers = now.gathers;
  stats.prefetched_gathers = now.prefetched_gathers;
  stats.divergences = now.divergences;
  stats.grown_slots = now.grown_slots;
  stats.extra_slots = now.extra_slots;
  stats.stall_ns = now.stall_ns;
  stats.tier_allocations = now.tier_allocations;
  stats.chunks = now.chunks;
  stats.chunk_bytes = now.chunk_bytes.count();
  GiveStruct(stats, given);
  return OkStatus();
}

Status Park(castor_engine& engine, int32_t tier, castor_park* given) {
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  }
  if (tier < CASTOR_DEVICE || tier > CASTOR_NVME) {
    return InvalidArgument(fmt::format(
        "there is no tier {}: give CASTOR_HOST or CASTOR_NVME", tier));
  }
  CASTOR_ASSIGN_OR_RETURN(
      ParkResult parked,
      engine.engine->Park(tier == CASTOR_DEVICE ? Tier::kDevice
                          : tier == CASTOR_HOST ? Tier::kHost
                                                : Tier::kNvme));
  engine.shortfall = std::move(parked.shortfall);
  if (given == nullptr) return OkStatus();
  castor_park park = {};
  park.moved_bytes = parked.moved.count();
  park.remaining_bytes = parked.remaining.count();
  park.held_bytes = parked.held.count();
  park.shortfall = engine.shortfall.c_str();
  GiveStruct(park, given);
  return OkStatus();
}

Status Trace(castor_engine& engine, const char** text, size_t* size) {
  if (text == nullptr || size == nullptr) {
    return InvalidArgument("text or size is null; give both");
  }
  if (!engine.sealed) {
    return FailedPrecondition("no step was made yet: call castor_engine_seal");
  }
  engine.trace = WriteTrace(engine.engine->RecordedTrace());
  *text = engine.trace.c_str();
  *size = engine.trace.size();
  return OkStatus();
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

using castor::c_api::WithEngine;

int32_t castor_engine_park(castor_engine* engine, int32_t tier,
                           castor_park* park) {
  return WithEngine(engine, [&](castor_engine& its) {
    return castor::c_api::Park(its, tier, park);
  });
}

int32_t castor_engine_resume(castor_engine* engine) {
  return WithEngine(engine,
                    [](castor_engine& its) { return its.engine->Resume(); });
}

int32_t castor_engine_trace(castor_engine* engine, const char** text,
                            size_t* size) {
  return WithEngine(engine, [&](castor_engine& its) {
    return castor::c_api::Trace(its, text, size);
  });
}

int32_t castor_engine_get_stats(const castor_engine* engine,
                                castor_engine_stats* stats) {
  return WithEngine(engine, [&](const castor_engine& its) {
    return castor::c_api::GetStats(its, stats);
  });
}

}  // extern "C"
