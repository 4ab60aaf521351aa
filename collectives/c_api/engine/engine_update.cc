// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A program's own update of parameters, through the C ABI.

#include <cstddef>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/custom_update.h"
#include "collectives/zero_engine.h"
#include "placement/state_kind.h"

namespace castor::c_api {
namespace {

static_assert(CASTOR_OPTIMIZER_STATES == kMaxOptimizerStates);

Status CallProgram(const EngineEntry& engine, castor_update_fn update,
                   void* context, const UpdateCall& call) {
  std::vector<castor_update_run> runs;
  runs.reserve(call.runs.size());
  for (const UpdateRun& run : call.runs) {
    castor_update_run& its = runs.emplace_back();
    its.first_element = run.first_element;
    its.elements = run.elements;
    its.step = run.step;
    its.lr = run.lr;
    its.values = run.values;
    its.grad = run.grad;
    for (size_t i = 0; i < run.states.size(); ++i) {
      its.states[i] = run.states[i];
    }
    its.param = run.param.value();
    its.reserved = 0;
  }
  castor_update its = {};
  its.struct_size = sizeof(its);
  its.runs = runs.data();
  its.run_count = static_cast<int64_t>(runs.size());
  its.grad_dtype = DTypeName(call.grad_dtype).data();
  its.stream = call.stream;
  its.grad_factor = call.grad_factor;
  its.on_device = call.on_device ? 1 : 0;
  const InCallback inside(&engine.turns);
  return RunCallback("update", [&] { return update(context, &its); });
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

int32_t castor_engine_set_update(castor_engine* engine, castor_update_fn update,
                                 void* context) {
  return castor::c_api::WithEngine(
      engine, [&](castor::c_api::EngineEntry& its) -> castor::Status {
        if (update == nullptr) {
          return castor::InvalidArgument("update is null");
        }
        return its.engine->SetUpdate(
            [&its, update, context](const castor::UpdateCall& call) {
              return castor::c_api::CallProgram(its, update, context, call);
            });
      });
}

}  // extern "C"
