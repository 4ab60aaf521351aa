// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Steps of training through the C ABI.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/quote.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/dry_step.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/zero_engine.h"

namespace castor::c_api {
namespace {

Status Acquire(EngineEntry& engine, const int32_t* params, size_t count,
               const void** data, castor_param_lease** lease) {
  if (lease == nullptr ||
      (count > 0 && (params == nullptr || data == nullptr))) {
    return InvalidArgument("params, data or lease is null; give all three");
  }
  *lease = nullptr;
  CASTOR_RETURN_IF_ERROR(CheckLane(engine));
  std::vector<ParamId> ids;
  ids.reserve(count);
  for (const int32_t param : std::span(params, count)) {
    CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
    ids.emplace_back(param);
  }
  auto made = std::make_unique<ParamLeaseEntry>();
  made->engine = &engine;
  made->lane = &engine.in_use.now();
  made->mark = engine.in_use.mark();
  if (engine.dry) {
    std::fill_n(data, count, engine.dry->Acquire(ids));
    made->dry = std::move(ids);
  } else {
    CASTOR_ASSIGN_OR_RETURN(made->lease,
                            engine.engine->Acquire(ids, *made->lane));
    for (size_t i = 0; i < count; ++i) data[i] = made->lease.data(i);
  }
  *lease = GiveHandle<castor_param_lease>(std::move(made));
  ++engine.leases;
  return OkStatus();
}

// Of two calls with one lease the second is told, and the engine stays for the
// first: it counts the lease.
template <typename Handle>
Status Release(const Handle* handle) {
  if (handle == nullptr) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(Claim<Handle> lease, Claim<Handle>::Of(handle));
  CASTOR_ASSIGN_OR_RETURN(const Use<castor_engine> used,
                          Use<castor_engine>::Of(lease->engine->handle));
  return InTurn(*used, [&lease](EngineEntry& engine) {
    const Lane* const lane = lease->lane;
    lease->End();
    lease.Delete();
    --engine.leases;
    return lane->status();
  });
}

Status Grad(EngineEntry& engine, int32_t param, void** data) {
  if (data == nullptr) return InvalidArgument("data is null");
  CASTOR_RETURN_IF_ERROR(CheckLane(engine));
  CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
  if (engine.dry) {
    CASTOR_ASSIGN_OR_RETURN(*data, engine.dry->Grad(ParamId(param)));
    return OkStatus();
  }
  Lane& lane = engine.in_use.now();
  CASTOR_ASSIGN_OR_RETURN(*data, engine.engine->Grad(ParamId(param), lane));
  // What was written before is added to.
  EngineEntry::OpenGrad& open = engine.grads[static_cast<size_t>(param)];
  if (open.lane == nullptr) {
    open.mark = engine.in_use.mark();
  } else if (open.lane != &lane) {
    lane.Wait(open.lane->Record());
  }
  open.lane = &lane;
  return OkStatus();
}

Status GradReady(EngineEntry& engine, int32_t param) {
  CASTOR_RETURN_IF_ERROR(CheckLane(engine));
  CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
  if (engine.dry) return engine.dry->GradReady(ParamId(param));
  Lane& lane = engine.in_use.now();
  EngineEntry::OpenGrad& open = engine.grads[static_cast<size_t>(param)];
  if (open.lane != nullptr) {
    engine.in_use.Since(open.mark, [&](Lane& other) {
      if (&other != &lane) lane.Wait(other.Record());
    });
  }
  open = {};
  return engine.engine->GradReady(ParamId(param), lane);
}

DType GradDType(const EngineEntry& engine, int32_t param) {
  return engine.fp32_grads ? DType::kF32
                           : engine.specs[static_cast<size_t>(param)].dtype;
}

Bytes GradBytes(const EngineEntry& engine, int32_t param) {
  return BytesOf(Elements(engine.sizes[static_cast<size_t>(param)]),
                 GradDType(engine, param));
}

// `values`: a whole gradient.
Status CopyGrad(EngineEntry& engine, int32_t param, const void* values) {
  const Bytes size = GradBytes(engine, param);
  if (values == nullptr && size > Bytes(0)) {
    return InvalidArgument("values is null");
  }
  void* to = nullptr;
  CASTOR_RETURN_IF_ERROR(Grad(engine, param, &to));
  if (size > Bytes(0) && to != nullptr) {
    if (engine.device == nullptr || engine.device->host_addressable) {
      std::memcpy(to, values, static_cast<size_t>(size.count()));
    } else {
      engine.device->device->Copy(
          engine.in_use.now(), static_cast<std::byte*>(to),
          static_cast<const std::byte*>(values), size, CopyKind::kWithinDevice);
    }
  }
  return GradReady(engine, param);
}

Status GiveGrad(EngineEntry& engine, int32_t param, const void* values,
                size_t bytes) {
  if (values == nullptr && bytes > 0) return InvalidArgument("values is null");
  CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
  const Bytes size = GradBytes(engine, param);
  if (bytes != static_cast<size_t>(size.count())) {
    return InvalidArgument(
        fmt::format("{} bytes are no gradient of {}, which has {} of {}", bytes,
                    Quoted(engine.specs[static_cast<size_t>(param)].name),
                    size.count(), DTypeName(GradDType(engine, param))));
  }
  return CopyGrad(engine, param, values);
}

Status GiveGrads(EngineEntry& engine, const int32_t* params,
                 void* const* values, size_t count) {
  if (count > 0 && (params == nullptr || values == nullptr)) {
    return InvalidArgument("params or values is null; give both");
  }
  for (size_t i = 0; i < count; ++i) {
    CASTOR_RETURN_IF_ERROR(CheckParam(engine, params[i]));
  }
  if (engine.dry || !engine.engine->borrows_grads()) {
    for (size_t i = 0; i < count; ++i) {
      CASTOR_RETURN_IF_ERROR(CopyGrad(engine, params[i], values[i]));
    }
    return OkStatus();
  }
  CASTOR_RETURN_IF_ERROR(CheckLane(engine));
  std::vector<ParamId> ids;
  std::vector<std::byte*> grads;
  for (size_t i = 0; i < count; ++i) {
    ids.emplace_back(params[i]);
    grads.push_back(static_cast<std::byte*>(values[i]));
  }
  return engine.engine->BorrowGrads(ids, grads, engine.in_use.now());
}

Status Borrow(EngineEntry& engine, int64_t bytes, void** data,
              castor_memory_lease** lease) {
  if (data == nullptr || lease == nullptr) {
    return InvalidArgument("data or lease is null; give both");
  }
  *data = nullptr;
  *lease = nullptr;
  if (bytes <= 0) return InvalidArgument("bytes is not positive");
  CASTOR_RETURN_IF_ERROR(CheckLane(engine));
  auto made = std::make_unique<MemoryLeaseEntry>();
  made->engine = &engine;
  made->lane = &engine.in_use.now();
  made->mark = engine.in_use.mark();
  if (engine.dry) {
    CASTOR_ASSIGN_OR_RETURN(*data, engine.dry->Borrow(Bytes(bytes)));
    made->dry = Bytes(bytes);
  } else {
    CASTOR_ASSIGN_OR_RETURN(made->lease,
                            engine.engine->Borrow(Bytes(bytes), *made->lane));
    *data = made->lease.data();
  }
  *lease = GiveHandle<castor_memory_lease>(std::move(made));
  ++engine.leases;
  return OkStatus();
}

Status BeginDryStep(EngineEntry& engine) {
  if (engine.sealed || engine.dry) {
    return FailedPrecondition(
        engine.dry ? "a dry step is under way: end it by castor_engine_step"
                   : "a dry step comes before castor_engine_seal");
  }
  Bytes largest;
  for (size_t p = 0; p < engine.specs.size(); ++p) {
    // Gradients may be in fp32.
    largest =
        std::max(largest, BytesOf(Elements(engine.sizes[p]), DType::kF32));
  }
  Device* const device =
      engine.device == nullptr ? nullptr : engine.device->device.get();
  CASTOR_ASSIGN_OR_RETURN(engine.dry, DryStep::Begin(largest, device));
  return OkStatus();
}

// Work on lanes may still be on the scratch.
Status EndDryStep(EngineEntry& engine) {
  CASTOR_RETURN_IF_ERROR(engine.in_use.now().Drain());
  for (LaneEntry* lane : engine.lanes) {
    CASTOR_RETURN_IF_ERROR(lane->lane->Drain());
  }
  CASTOR_ASSIGN_OR_RETURN(engine.dry_seen, std::move(*engine.dry).End());
  engine.dry.reset();
  return OkStatus();
}

Status BeginMicroBatch(EngineEntry& engine, bool last) {
  if (!engine.dry) return engine.engine->BeginMicroBatch(last);
  engine.dry->BeginMicroBatch();
  return OkStatus();
}

Status Step(EngineEntry& engine, double lr, castor_step* given) {
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  }
  StepResult made;
  if (engine.dry) {
    CASTOR_RETURN_IF_ERROR(EndDryStep(engine));
    made.applied = false;
  } else {
    CASTOR_RETURN_IF_ERROR(WriteBehindLeases(engine));
    CASTOR_ASSIGN_OR_RETURN(made, engine.engine->Step(lr));
    // Work on any lane may read what leases show.
    if (engine.leases > 0) {
      engine.in_use.Since(0, [&made](Lane& lane) { lane.Wait(made.written); });
      CASTOR_RETURN_IF_ERROR(engine.in_use.now().status());
    }
  }
  if (given == nullptr) return OkStatus();
  castor_step step = {};
  step.step = made.step;
  step.grad_norm = made.grad_norm;
  step.clip_factor = made.clip_factor;
  step.loss_scale = made.loss_scale;
  step.applied = made.applied ? 1 : 0;
  step.not_finite = made.not_finite.value();
  GiveStruct(step, given);
  return OkStatus();
}

Status BeginEvaluation(EngineEntry& engine) {
  if (engine.evaluating) {
    return FailedPrecondition("an evaluation is under way; end it first");
  }
  CASTOR_ASSIGN_OR_RETURN(engine.evaluation, engine.engine->Evaluate());
  engine.evaluating = true;
  return OkStatus();
}

Status EndEvaluation(EngineEntry& engine) {
  if (!engine.evaluating) {
    return FailedPrecondition("no evaluation is under way; begin one first");
  }
  engine.evaluation.End();
  engine.evaluating = false;
  return OkStatus();
}

template <typename Lease>
void NameLanes(Lease* lease) {
  lease->engine->in_use.Since(
      lease->mark, [&](Lane& lane) { lease->lease.AlsoUsedOn(lane); });
}

}  // namespace

void ParamLeaseEntry::End() {
  if (engine->dry) engine->dry->Release(dry);
  NameLanes(this);
  lease.Release();
}

void MemoryLeaseEntry::End() {
  if (engine->dry) engine->dry->Return(dry);
  NameLanes(this);
  lease.Release();
}

}  // namespace castor::c_api

extern "C" {

using castor::c_api::WithEngine;

int32_t castor_engine_begin_dry_step(castor_engine* engine) {
  return WithEngine(engine, castor::c_api::BeginDryStep);
}

int32_t castor_engine_begin_micro_batch(castor_engine* engine, int32_t last) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::BeginMicroBatch(its, last != 0);
  });
}

int32_t castor_engine_acquire(castor_engine* engine, const int32_t* params,
                              size_t count, const void** data,
                              castor_param_lease** lease) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Acquire(its, params, count, data, lease);
  });
}

int32_t castor_param_lease_release(castor_param_lease* lease) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Release(lease); });
}

int32_t castor_engine_grad(castor_engine* engine, int32_t param, void** data) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Grad(its, param, data);
  });
}

int32_t castor_engine_grad_ready(castor_engine* engine, int32_t param) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::GradReady(its, param);
  });
}

int32_t castor_engine_give_grad(castor_engine* engine, int32_t param,
                                const void* values, size_t bytes) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::GiveGrad(its, param, values, bytes);
  });
}

int32_t castor_engine_give_grads(castor_engine* engine, const int32_t* params,
                                 void* const* values, size_t count) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::GiveGrads(its, params, values, count);
  });
}

int32_t castor_engine_borrow(castor_engine* engine, int64_t bytes, void** data,
                             castor_memory_lease** lease) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Borrow(its, bytes, data, lease);
  });
}

int32_t castor_memory_lease_release(castor_memory_lease* lease) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Release(lease); });
}

int32_t castor_engine_step(castor_engine* engine, double lr,
                           castor_step* step) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Step(its, lr, step);
  });
}

int32_t castor_engine_update_early(castor_engine* engine, double lr) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return its.engine->UpdateEarly(lr);
  });
}

int32_t castor_engine_guess_updates(castor_engine* engine, double lr) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return its.engine->GuessUpdates(lr);
  });
}

int32_t castor_engine_clip_gradients(castor_engine* engine, double max_norm,
                                     double* norm) {
  return WithEngine(
      engine, [&](castor::c_api::EngineEntry& its) -> castor::Status {
        CASTOR_ASSIGN_OR_RETURN(const double found,
                                its.engine->ClipGradients(max_norm));
        if (norm != nullptr) *norm = found;
        return castor::OkStatus();
      });
}

int32_t castor_engine_finish_gradients(castor_engine* engine) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return its.engine->FinishGradients();
  });
}

int32_t castor_engine_drop_gradient(castor_engine* engine, int32_t param) {
  return WithEngine(
      engine, [&](castor::c_api::EngineEntry& its) -> castor::Status {
        CASTOR_RETURN_IF_ERROR(castor::c_api::CheckParam(its, param));
        return its.engine->DropGradient(castor::ParamId(param));
      });
}

int32_t castor_engine_begin_evaluation(castor_engine* engine) {
  return WithEngine(engine, castor::c_api::BeginEvaluation);
}

int32_t castor_engine_end_evaluation(castor_engine* engine) {
  return WithEngine(engine, castor::c_api::EndEvaluation);
}

int32_t castor_engine_abandon(castor_engine* engine) {
  return WithEngine(engine, [](castor::c_api::EngineEntry& its) {
    return its.engine->Abandon();
  });
}

}  // extern "C"
