// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Engines through the C ABI: made, told of parameters, sealed, ended.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/answers/plan_file.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_config.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/c_api/tensor.h"
#include "collectives/communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"

namespace castor::c_api {

Status CheckParam(const EngineEntry& engine, int32_t param) {
  if (param >= 0 && param < engine.params) return OkStatus();
  return InvalidArgument(
      fmt::format("there is no parameter {}: {} are registered, from 0", param,
                  engine.params));
}

namespace {

Status CreateEngine(const castor_world* handle, int32_t rank,
                    const castor_device* on, const char* config,
                    castor_engine** engine) {
  if (handle == nullptr || engine == nullptr) {
    return InvalidArgument("world or engine is null; give both");
  }
  *engine = nullptr;
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_world> world,
                          Use<castor_world>::Of(handle));
  CASTOR_RETURN_IF_ERROR(CheckProcess(world->generation));
  if (rank < 0 || static_cast<size_t>(rank) >= world->ranks.size()) {
    return InvalidArgument(fmt::format("the world has ranks 0 to {}, not {}",
                                       world->ranks.size() - 1, rank));
  }
  Use<castor_device> its_device;
  if (on != nullptr) {
    CASTOR_ASSIGN_OR_RETURN(its_device, Use<castor_device>::Of(on));
  }
  DeviceEntry* const device = its_device.get();
  if (device != nullptr && device->world != world.get()) {
    return InvalidArgument("the device is of another world");
  }
  if (world->gpu_ordinal >= 0 &&
      (device == nullptr || device->kind != CASTOR_DEVICE_CUDA)) {
    return InvalidArgument(fmt::format(
        "the world's ranks are GPUs, which NCCL connects: give the engine the "
        "device of castor_device_open_cuda(world, {}, ...)",
        world->gpu_ordinal));
  }
  if (config == nullptr) {
    return InvalidArgument(
        "config is null: give a JSON object; \"{}\" takes every default, and "
        "budgets without a limit");
  }
  Result<EngineConfig> parsed = ReadEngineConfig(config);
  if (!parsed.ok()) return parsed.status().WithContext("config");
  EngineConfig read = *std::move(parsed);
  ZeroOptions& options = read.options;
  auto made = std::make_unique<EngineEntry>(world.get());
  options.executor = world->pool.get();
  options.workers = world->workers.get();
  options.log = &made->log;
  if (device != nullptr) {
    options.device = device->device.get();
    if (device->allocator.allocate != nullptr) {
      options.make_device_slab = [device, engine = made.get()](Bytes size) {
        return SlabFrom(*device, size, engine->in_use.now());
      };
    }
  }
  {
    std::lock_guard lock(world->mutex);
    options.recorder = world->recorder.get();
    // It stays while there are engines.
    ++world->engines;
  }
  const auto taken_back = [&world](Status status) {
    --world->engines;
    return status;
  };
  const auto index = static_cast<size_t>(rank);
  Communicator* const communicator = world->ranks[index].get();
  if (communicator == nullptr) {
    return taken_back(InvalidArgument(fmt::format(
        "rank {} is another process: this one may create its own rank only",
        rank)));
  }
  // Before there is an engine, whose end would be the world's.
  if (world->taken[index].exchange(true)) {
    return taken_back(FailedPrecondition(fmt::format(
        "rank {} has an engine: destroy that before, or make another world",
        rank)));
  }
  Result<std::unique_ptr<ZeroEngine>> created =
      ZeroEngine::Create(options, communicator);
  if (!created.ok()) {
    world->taken[index] = false;
    return taken_back(created.status());
  }
  made->engine = *std::move(created);
  made->fp32_grads = options.grad_mode == GradMode::kFp32;
  made->plan = std::move(read.plan);
  made->rank = rank;
  made->device = device;
  EngineEntry* const its = made.get();
  *engine = GiveHandle<castor_engine>(std::move(made));
  its->handle = *engine;
  if (device != nullptr) ++device->engines;
  return OkStatus();
}

Status EndForDestroy(EngineEntry& engine) {
  if (engine.leases > 0) {
    return FailedPrecondition(
        fmt::format("{} leases of the engine are there; release them first",
                    engine.leases));
  }
  engine.evaluation.End();
  // Gradients of a step that was left half done may still be written to.
  // Failures are the lanes' own, and told there.
  engine.in_use.now().Drain().IgnoreError();
  for (LaneEntry* lane : engine.lanes) lane->lane->Drain().IgnoreError();
  engine.gone = true;
  return OkStatus();
}

Status DestroyEngine(castor_engine* handle) {
  if (handle == nullptr) return OkStatus();
  EngineEntry* engine = nullptr;
  {
    CASTOR_ASSIGN_OR_RETURN(const Use<castor_engine> its,
                            Use<castor_engine>::Of(handle));
    CASTOR_RETURN_IF_ERROR(InTurn(*its, EndForDestroy));
    engine = its.get();
  }
  // Calls that came meanwhile find the engine gone in their turn.
  EndHandle(handle);
  WorldEntry* const world = engine->world;
  DeviceEntry* const device = engine->device;
  const std::set<LaneEntry*> lanes = std::move(engine->lanes);
  const auto rank = static_cast<size_t>(engine->rank);
  delete engine;
  world->taken[rank] = false;
  for (LaneEntry* lane : lanes) --lane->engines;
  if (device != nullptr) --device->engines;
  --world->engines;
  return OkStatus();
}

Status Register(EngineEntry& engine, const castor_tensor* tensor,
                const char* group, castor_initializer initializer,
                void* context, int32_t* param) {
  if (tensor == nullptr || param == nullptr) {
    return InvalidArgument("tensor or param is null; give both");
  }
  CASTOR_ASSIGN_OR_RETURN(ParamSpec spec,
                          SpecOf(*tensor, static_cast<size_t>(engine.params)));
  CASTOR_ASSIGN_OR_RETURN(const Elements size,
                          CountElements(spec.shape, spec.dtype));
  ParamSpec kept = spec;
  Initializer fill;
  if (initializer != nullptr) {
    fill = [initializer, context](int64_t begin, int64_t end, float* out) {
      return RunCallback("initializer",
                         [&] { return initializer(context, begin, end, out); });
    };
  }
  CASTOR_ASSIGN_OR_RETURN(
      const ParamId id,
      engine.engine->Register(std::move(spec), std::move(fill),
                              group == nullptr ? "" : group));
  engine.specs.push_back(std::move(kept));
  engine.sizes.push_back(size.count());
  engine.grads.emplace_back();
  ++engine.params;
  *param = id.value();
  return OkStatus();
}

Result<std::vector<ParamId>> IdsOf(const EngineEntry& engine,
                                   const int32_t* params, size_t count) {
  std::vector<ParamId> ids;
  if (params == nullptr && count > 0) {
    return InvalidArgument("a list of parameters is null and has some");
  }
  for (const int32_t param : std::span(params, count)) {
    CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
    ids.emplace_back(param);
  }
  return ids;
}

Result<SealOptions> TakeSeal(const EngineEntry& engine,
                             const castor_seal_options* given) {
  SealOptions options;
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
    const castor_seal_options set = TakeStruct(*given);
    if (set.held == nullptr && set.held_count > 0) {
      return InvalidArgument("held is null and has moments");
    }
    for (const castor_held& held : std::span(set.held, set.held_count)) {
      HeldTogether& together = options.held.emplace_back();
      CASTOR_ASSIGN_OR_RETURN(together.params,
                              IdsOf(engine, held.params, held.param_count));
      CASTOR_ASSIGN_OR_RETURN(together.grads,
                              IdsOf(engine, held.grads, held.grad_count));
    }
    options.largest_lease = Bytes(set.largest_lease_bytes);
    if (set.micro_batches > 0) options.micro_batches = set.micro_batches;
    options.grow = set.grow != 0;
    options.estimate = set.estimate != 0;
  }
  return options;
}

Status Seal(EngineEntry& engine, const castor_seal_options* given) {
  if (engine.dry) {
    return FailedPrecondition(
        "a dry step is under way: end it by castor_engine_step");
  }
  CASTOR_ASSIGN_OR_RETURN(SealOptions options, TakeSeal(engine, given));
  if (engine.dry_seen && options.held.empty()) {
    const SealOptions& seen = *engine.dry_seen;
    options.held = seen.held;
    options.largest_lease = std::max(options.largest_lease, seen.largest_lease);
    options.micro_batches = std::max(options.micro_batches, seen.micro_batches);
  }
  if (engine.plan) {
    const std::vector<ParamSpec> specs(engine.specs.begin(),
                                       engine.specs.end());
    CASTOR_RETURN_IF_ERROR(CheckPlanFits(
        *engine.plan, specs, engine.engine->world(), engine.world->processes));
  }
  CASTOR_RETURN_IF_ERROR(engine.engine->Seal(options));
  engine.sealed = true;
  return OkStatus();
}

Status Reseal(EngineEntry& engine, const castor_reseal_options* given) {
  ResealOptions options;
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
    const castor_reseal_options set = TakeStruct(*given);
    if (set.device_budget_bytes < 0 || set.host_budget_bytes < 0) {
      return InvalidArgument("a budget is negative: give 0 for what it was");
    }
    if (set.device_budget_bytes > 0) {
      options.device_budget = Bytes(set.device_budget_bytes);
    }
    if (set.host_budget_bytes > 0) {
      options.host_budget = Bytes(set.host_budget_bytes);
    }
    CASTOR_ASSIGN_OR_RETURN(options.declared, TakeSeal(engine, set.seal));
  }
  return engine.engine->Reseal(options);
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

using castor::c_api::WithEngine;

int32_t castor_engine_create(castor_world* world, int32_t rank,
                             castor_device* device, const char* config,
                             castor_engine** engine) {
  return castor::c_api::ThroughTheDoor([&] {
    return castor::c_api::CreateEngine(world, rank, device, config, engine);
  });
}

int32_t castor_engine_destroy(castor_engine* engine) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::DestroyEngine(engine); });
}

int32_t castor_engine_close(castor_engine* engine) {
  return WithEngine(engine, [](castor::c_api::EngineEntry& its) {
    return its.engine->Close();
  });
}

int32_t castor_engine_register(castor_engine* engine,
                               const castor_tensor* tensor, const char* group,
                               castor_initializer initializer, void* context,
                               int32_t* param) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Register(its, tensor, group, initializer, context,
                                   param);
  });
}

int32_t castor_engine_seal(castor_engine* engine,
                           const castor_seal_options* options) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Seal(its, options);
  });
}

int32_t castor_engine_reseal(castor_engine* engine,
                             const castor_reseal_options* options) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Reseal(its, options);
  });
}

int32_t castor_initialize_from(void* context, int64_t begin, int64_t end,
                               float* values) {
  std::copy(static_cast<const float*>(context) + begin,
            static_cast<const float*>(context) + end, values);
  return CASTOR_OK;
}

}  // extern "C"
