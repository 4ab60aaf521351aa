// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Steps of training through the C ABI.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine_handle.h"
#include "collectives/zero_engine.h"

namespace castor::c_api {
namespace {

constexpr char kNoEngine[] = "engine is null";

Status Acquire(castor_engine* engine, const int32_t* params, size_t count,
               const void** data, castor_param_lease** lease) {
  if (engine == nullptr || lease == nullptr ||
      (count > 0 && (params == nullptr || data == nullptr))) {
    return InvalidArgument("engine, params, data or lease is null; give all");
  }
  *lease = nullptr;
  std::vector<ParamId> ids;
  ids.reserve(count);
  for (const int32_t param : std::span(params, count)) {
    CASTOR_RETURN_IF_ERROR(CheckParam(*engine, param));
    ids.emplace_back(param);
  }
  auto made = std::make_unique<castor_param_lease>();
  CASTOR_ASSIGN_OR_RETURN(made->lease,
                          engine->engine->Acquire(ids, *engine->lane));
  made->engine = engine;
  made->lane = engine->lane;
  for (size_t i = 0; i < count; ++i) data[i] = made->lease.data(i);
  ++engine->leases;
  *lease = made.release();
  return OkStatus();
}

template <typename Lease>
Status Release(Lease* lease) {
  if (lease == nullptr) return OkStatus();
  castor_engine* const engine = lease->engine;
  const Lane* const lane = lease->lane;
  delete lease;
  --engine->leases;
  return lane->status();
}

Status Grad(castor_engine* engine, int32_t param, void** data) {
  if (engine == nullptr || data == nullptr) {
    return InvalidArgument("engine or data is null; give both");
  }
  CASTOR_RETURN_IF_ERROR(CheckParam(*engine, param));
  CASTOR_ASSIGN_OR_RETURN(*data,
                          engine->engine->Grad(ParamId(param), *engine->lane));
  return OkStatus();
}

Status GradReady(castor_engine* engine, int32_t param) {
  if (engine == nullptr) return InvalidArgument(kNoEngine);
  CASTOR_RETURN_IF_ERROR(CheckParam(*engine, param));
  return engine->engine->GradReady(ParamId(param), *engine->lane);
}

Status Borrow(castor_engine* engine, int64_t bytes, void** data,
              castor_memory_lease** lease) {
  if (engine == nullptr || data == nullptr || lease == nullptr) {
    return InvalidArgument("engine, data or lease is null; give all three");
  }
  *data = nullptr;
  *lease = nullptr;
  if (bytes <= 0) return InvalidArgument("bytes is not positive");
  auto made = std::make_unique<castor_memory_lease>();
  CASTOR_ASSIGN_OR_RETURN(made->lease,
                          engine->engine->Borrow(Bytes(bytes), *engine->lane));
  made->engine = engine;
  made->lane = engine->lane;
  ++engine->leases;
  *data = made->lease.data();
  *lease = made.release();
  return OkStatus();
}

Status Step(castor_engine* engine, double lr, castor_step* given) {
  if (engine == nullptr) return InvalidArgument(kNoEngine);
  if (given != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckStructSize(*given, sizeof(castor_step)));
  }
  CASTOR_ASSIGN_OR_RETURN(const StepResult made, engine->engine->Step(lr));
  if (given == nullptr) return OkStatus();
  castor_step step = {};
  step.step = made.step;
  step.grad_norm = made.grad_norm;
  step.clip_factor = made.clip_factor;
  step.loss_scale = made.loss_scale;
  step.applied = made.applied ? 1 : 0;
  GiveStruct(step, given);
  return OkStatus();
}

Status BeginEvaluation(castor_engine* engine) {
  if (engine == nullptr) return InvalidArgument(kNoEngine);
  if (engine->evaluating) {
    return FailedPrecondition("an evaluation is under way; end it first");
  }
  CASTOR_ASSIGN_OR_RETURN(engine->evaluation, engine->engine->Evaluate());
  engine->evaluating = true;
  return OkStatus();
}

Status EndEvaluation(castor_engine* engine) {
  if (engine == nullptr) return InvalidArgument(kNoEngine);
  if (!engine->evaluating) {
    return FailedPrecondition("no evaluation is under way; begin one first");
  }
  engine->evaluation.End();
  engine->evaluating = false;
  return OkStatus();
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

int32_t castor_engine_begin_micro_batch(castor_engine* engine, int32_t last) {
  return castor::c_api::ThroughTheDoor([&] {
    return engine == nullptr ? castor::InvalidArgument(castor::c_api::kNoEngine)
                             : engine->engine->BeginMicroBatch(last != 0);
  });
}

int32_t castor_engine_acquire(castor_engine* engine, const int32_t* params,
                              size_t count, const void** data,
                              castor_param_lease** lease) {
  return castor::c_api::ThroughTheDoor([&] {
    return castor::c_api::Acquire(engine, params, count, data, lease);
  });
}

int32_t castor_param_lease_release(castor_param_lease* lease) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Release(lease); });
}

int32_t castor_engine_grad(castor_engine* engine, int32_t param, void** data) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Grad(engine, param, data); });
}

int32_t castor_engine_grad_ready(castor_engine* engine, int32_t param) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::GradReady(engine, param); });
}

int32_t castor_engine_borrow(castor_engine* engine, int64_t bytes, void** data,
                             castor_memory_lease** lease) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Borrow(engine, bytes, data, lease); });
}

int32_t castor_memory_lease_release(castor_memory_lease* lease) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Release(lease); });
}

int32_t castor_engine_step(castor_engine* engine, double lr,
                           castor_step* step) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Step(engine, lr, step); });
}

int32_t castor_engine_update_early(castor_engine* engine, double lr) {
  return castor::c_api::ThroughTheDoor([&] {
    return engine == nullptr ? castor::InvalidArgument(castor::c_api::kNoEngine)
                             : engine->engine->UpdateEarly(lr);
  });
}

int32_t castor_engine_set_learning_rate(castor_engine* engine,
                                        const char* group, double lr) {
  return castor::c_api::ThroughTheDoor([&] {
    return engine == nullptr ? castor::InvalidArgument(castor::c_api::kNoEngine)
                             : engine->engine->SetLearningRate(
                                   group == nullptr ? "" : group, lr);
  });
}

int32_t castor_engine_loss_scale(const castor_engine* engine, double* scale) {
  return castor::c_api::ThroughTheDoor([&] {
    if (engine == nullptr || scale == nullptr) {
      return castor::InvalidArgument("engine or scale is null; give both");
    }
    *scale = engine->engine->LossScale();
    return castor::OkStatus();
  });
}

int32_t castor_engine_begin_evaluation(castor_engine* engine) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::BeginEvaluation(engine); });
}

int32_t castor_engine_end_evaluation(castor_engine* engine) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::EndEvaluation(engine); });
}

int32_t castor_engine_abandon(castor_engine* engine) {
  return castor::c_api::ThroughTheDoor([&] {
    return engine == nullptr ? castor::InvalidArgument(castor::c_api::kNoEngine)
                             : engine->engine->Abandon();
  });
}

}  // extern "C"
