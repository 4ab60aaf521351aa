// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What an engine holds, through the C ABI: values, checkpoints, figures.

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/json_value.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/zero_engine.h"
#include "placement/run_event.h"
#include "placement/trace/trace_file.h"

namespace castor::c_api {
namespace {

int64_t BudgetOf(const TierUse& tier) {
  return IsUnlimited(tier.budget) ? INT64_MAX : tier.budget.count();
}

Status GetStats(const EngineEntry& engine, castor_engine_stats* given) {
  if (given == nullptr) return InvalidArgument("stats is null");
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const EngineStats now = engine.engine->stats();
  const size_t device = TierIndex(Tier::kDevice);
  const size_t host = TierIndex(Tier::kHost);
  const size_t nvme = TierIndex(Tier::kNvme);
  castor_engine_stats stats = {};
  stats.device_budget_bytes = BudgetOf(now.tiers[device]);
  stats.device_peak_bytes = now.tiers[device].peak.count();
  stats.host_budget_bytes = BudgetOf(now.tiers[host]);
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
  stats.exchange_bytes = now.exchange.count();
  stats.stall_ns = now.stall_ns;
  stats.tier_allocations = now.tier_allocations;
  stats.chunks = now.chunks;
  stats.chunk_bytes = now.chunk_bytes.count();
  GiveStruct(stats, given);
  return OkStatus();
}

JsonValue TierJson(const EngineStats& stats, const StateNames& names,
                   size_t tier) {
  const TierUse& use = stats.tiers[tier];
  JsonValue json;
  json["budget_bytes"] =
      IsUnlimited(use.budget) ? JsonValue() : JsonValue(use.budget.count());
  json["in_use_bytes"] = use.in_use.count();
  json["peak_bytes"] = use.peak.count();
  json["home_bytes"] = stats.home_bytes[tier].count();
  for (int k = 0; k < names.states(); ++k) {
    json[fmt::format("{}_bytes", names.of(static_cast<StateKind>(k)))] =
        stats.state_bytes[k][tier].count();
  }
  return json;
}

JsonValue StatsJson(const EngineStats& stats, const StateNames& names) {
  JsonValue json;
  json["schema"] = "castor.engine_stats/1";
  for (const Tier tier : kAllTiers) {
    json["tiers"][TierName(tier)] = TierJson(stats, names, TierIndex(tier));
  }
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      if (from == to) continue;
      json["links"]
          [fmt::format("{}_to_{}_bytes", TierName(from), TierName(to))] =
              stats.moved[TierIndex(from)][TierIndex(to)].count();
    }
  }
  json["links"]["wire_sent_bytes"] = stats.wire_sent.count();
  json["most_nvme_written_in_a_step_bytes"] = stats.most_nvme_written.count();
  json["gathers"] = stats.gathers;
  json["fetches"] = stats.fetches;
  json["prefetched_gathers"] = stats.prefetched_gathers;
  json["cancelled_gathers"] = stats.cancelled_gathers;
  json["reduce_scatters"] = stats.reduce_scatters;
  json["early_updates"] = stats.early_updates;
  json["guesses"] = stats.guesses;
  json["right_guesses"] = stats.right_guesses;
  json["releases"] = stats.releases;
  json["divergences"] = stats.divergences;
  json["stall_ns"] = stats.stall_ns;
  json["stalls"] = stats.stalls;
  json["tier_allocations"] = stats.tier_allocations;
  json["engine_copies_bytes"] = stats.engine_copies.count();
  json["exchange_bytes"] = stats.exchange.count();
  json["gathered_slots"] = stats.gathered_slots;
  json["chunks"] = stats.chunks;
  json["chunk_sizes"] = stats.chunk_sizes;
  json["chunk_bytes"] = stats.chunk_bytes.count();
  return json;
}

Status GetStatsJson(EngineEntry& engine, const char** json) {
  if (json == nullptr) return InvalidArgument("json is null");
  engine.stats =
      StatsJson(engine.engine->stats(), engine.engine->state_names()).Dump(2) +
      '\n';
  *json = engine.stats.c_str();
  return OkStatus();
}

Status Mark(const EngineEntry& engine, const char* words) {
  if (words == nullptr) return InvalidArgument("words is null");
  const size_t size = std::strlen(words);
  if (size > kMostMarkBytes) {
    return InvalidArgument(
        fmt::format("a mark of {} bytes is too long: say it in {} at most",
                    size, kMostMarkBytes));
  }
  engine.engine->Mark(words);
  return OkStatus();
}

Status Park(EngineEntry& engine, int32_t tier, castor_park* given) {
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

Status Trace(EngineEntry& engine, const char** text, size_t* size) {
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
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Park(its, tier, park);
  });
}

int32_t castor_engine_resume(castor_engine* engine) {
  return WithEngine(engine, [](castor::c_api::EngineEntry& its) {
    return its.engine->Resume();
  });
}

int32_t castor_engine_trace(castor_engine* engine, const char** text,
                            size_t* size) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Trace(its, text, size);
  });
}

int32_t castor_engine_mark(castor_engine* engine, const char* words) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Mark(its, words);
  });
}

int32_t castor_engine_stats_json(castor_engine* engine, const char** json) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::GetStatsJson(its, json);
  });
}

int32_t castor_engine_get_stats(const castor_engine* engine,
                                castor_engine_stats* stats) {
  return WithEngine(engine, [&](const castor::c_api::EngineEntry& its) {
    return castor::c_api::GetStats(its, stats);
  });
}

}  // extern "C"
