// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What an engine holds, through the C ABI: values, checkpoints, figures.

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine_handle.h"
#include "collectives/c_api/turn.h"
#include "collectives/checkpoint/checkpoint_options.h"
#include "collectives/zero_engine.h"
#include "placement/trace_file.h"

namespace castor::c_api {
namespace {

Status CheckValues(const castor_engine& engine, int32_t param,
                   const float* values, int64_t elements) {
  if (values == nullptr && elements != 0) {
    return InvalidArgument("values is null");
  }
  CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
  const int64_t size = engine.sizes[static_cast<size_t>(param)];
  if (elements == size) return OkStatus();
  return InvalidArgument(fmt::format("parameter {} has {} elements, not {}",
                                     param, size, elements));
}

std::span<float> SpanOf(float* values, int64_t elements) {
  return {values, static_cast<size_t>(elements)};
}

Status Save(castor_engine& engine, const char* directory, const void* trainer,
            size_t trainer_size) {
  if (directory == nullptr || (trainer == nullptr && trainer_size > 0)) {
    return InvalidArgument("directory or trainer is null; give both");
  }
  SaveOptions options;
  options.directory = directory;
  if (trainer_size > 0) {
    options.trainer.assign(static_cast<const char*>(trainer), trainer_size);
  }
  return engine.engine->Save(options).status();
}

Status Load(castor_engine& engine, const char* directory, int64_t* step) {
  if (directory == nullptr) return InvalidArgument("directory is null");
  LoadOptions options;
  options.directory = directory;
  CASTOR_ASSIGN_OR_RETURN(LoadResult loaded, engine.engine->Load(options));
  engine.loaded_trainer = std::move(loaded.trainer);
  if (step != nullptr) *step = loaded.step;
  return OkStatus();
}

Status GetStats(const castor_engine& engine, castor_engine_stats* given) {
  if (given == nullptr) return InvalidArgument("stats is null");
  CASTOR_RETURN_IF_ERROR(CheckStructSize(*given, sizeof(castor_engine_stats)));
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
  stats.stall_ns = now.stall_ns;
  stats.tier_allocations = now.tier_allocations;
  stats.chunks = now.chunks;
  stats.chunk_bytes = now.chunk_bytes.count();
  GiveStruct(stats, given);
  return OkStatus();
}

Status Park(castor_engine& engine, int32_t tier, castor_park* given) {
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStructSize(*given, sizeof(castor_park)));
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

using castor::c_api::CheckValues;
using castor::c_api::SpanOf;
using castor::c_api::WithEngine;

int32_t castor_engine_find(const castor_engine* engine, const char* name,
                           int32_t* param) {
  return WithEngine(engine, [&](const castor_engine& its) -> castor::Status {
    if (name == nullptr || param == nullptr) {
      return castor::InvalidArgument("name or param is null; give both");
    }
    CASTOR_ASSIGN_OR_RETURN(const castor::ParamId id, its.engine->Find(name));
    *param = id.value();
    return castor::OkStatus();
  });
}

int32_t castor_engine_read_param(castor_engine* engine, int32_t param,
                                 float* values, int64_t elements) {
  return WithEngine(engine, [&](castor_engine& its) -> castor::Status {
    CASTOR_RETURN_IF_ERROR(CheckValues(its, param, values, elements));
    return its.engine->ReadParam(castor::ParamId(param),
                                 SpanOf(values, elements));
  });
}

int32_t castor_engine_write_param(castor_engine* engine, int32_t param,
                                  const float* values, int64_t elements) {
  return WithEngine(engine, [&](castor_engine& its) -> castor::Status {
    CASTOR_RETURN_IF_ERROR(CheckValues(its, param, values, elements));
    return its.engine->WriteParam(castor::ParamId(param),
                                  {values, static_cast<size_t>(elements)});
  });
}

int32_t castor_engine_read_grad(castor_engine* engine, int32_t param,
                                float* values, int64_t elements) {
  return WithEngine(engine, [&](castor_engine& its) -> castor::Status {
    CASTOR_RETURN_IF_ERROR(CheckValues(its, param, values, elements));
    return its.engine->ReadGrad(castor::ParamId(param),
                                SpanOf(values, elements));
  });
}

int32_t castor_engine_write_grad(castor_engine* engine, int32_t param,
                                 const float* values, int64_t elements) {
  return WithEngine(engine, [&](castor_engine& its) -> castor::Status {
    CASTOR_RETURN_IF_ERROR(CheckValues(its, param, values, elements));
    return its.engine->WriteGrad(castor::ParamId(param),
                                 {values, static_cast<size_t>(elements)});
  });
}

int32_t castor_engine_weight_digest(castor_engine* engine, uint64_t* digest) {
  return WithEngine(engine, [&](castor_engine& its) -> castor::Status {
    if (digest == nullptr) return castor::InvalidArgument("digest is null");
    CASTOR_ASSIGN_OR_RETURN(*digest, its.engine->WeightDigest());
    return castor::OkStatus();
  });
}

int32_t castor_engine_save(castor_engine* engine, const char* directory,
                           const void* trainer, size_t trainer_size) {
  return WithEngine(engine, [&](castor_engine& its) {
    return castor::c_api::Save(its, directory, trainer, trainer_size);
  });
}

int32_t castor_engine_load(castor_engine* engine, const char* directory,
                           int64_t* step) {
  return WithEngine(engine, [&](castor_engine& its) {
    return castor::c_api::Load(its, directory, step);
  });
}

int32_t castor_engine_loaded_trainer(const castor_engine* engine,
                                     const void** data, size_t* size) {
  return WithEngine(engine, [&](const castor_engine& its) {
    if (data == nullptr || size == nullptr) {
      return castor::InvalidArgument("data or size is null; give both");
    }
    *size = its.loaded_trainer.size();
    *data = *size == 0 ? nullptr : its.loaded_trainer.data();
    return castor::OkStatus();
  });
}

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
