// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the C ABI tells of parameters, their states, and the numbers they are
// trained with.

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/chunk_layout.h"
#include "chunk/text/quote.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/engine/engine_handle.h"
#include "collectives/c_api/engine/turn.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "collectives/zero_engine.h"
#include "placement/run_event.h"

namespace castor::c_api {
namespace {

static_assert(CASTOR_PARAM == static_cast<int>(StateKind::kParam) &&
              CASTOR_GRAD == static_cast<int>(StateKind::kGrad) &&
              CASTOR_MASTER == static_cast<int>(StateKind::kMaster) &&
              CASTOR_OPTIMIZER_STATE == static_cast<int>(OptimizerState(0)) &&
              CASTOR_STATES == kStateKinds);
static_assert(CASTOR_DEVICE == TierIndex(Tier::kDevice) &&
              CASTOR_HOST == TierIndex(Tier::kHost) &&
              CASTOR_NVME == TierIndex(Tier::kNvme));

Result<StateKind> KindOf(int32_t state) {
  if (state >= 0 && state < CASTOR_STATES) return static_cast<StateKind>(state);
  return InvalidArgument(fmt::format(
      "there is no state {}: give one of castor_state, from CASTOR_PARAM to "
      "CASTOR_OPTIMIZER_STATE and those behind it, below CASTOR_STATES",
      state));
}

Status CheckSealed(const EngineEntry& engine) {
  if (engine.sealed) return OkStatus();
  return FailedPrecondition(
      "nothing has a home yet: call castor_engine_seal first");
}

Status GetParam(const EngineEntry& engine, int32_t param,
                castor_param_info* given) {
  if (given == nullptr) return InvalidArgument("info is null");
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
  const ParamSpec& spec = engine.specs[static_cast<size_t>(param)];
  castor_param_info info = {};
  info.name = spec.name.c_str();
  info.dtype = DTypeName(spec.dtype).data();
  info.dims = spec.shape.data();
  info.dim_count = static_cast<int32_t>(spec.shape.size());
  info.frozen = spec.trainable ? 0 : 1;
  info.elements = engine.sizes[static_cast<size_t>(param)];
  info.chunk = -1;
  for (int32_t& home : info.homes) home = -1;
  if (engine.sealed) {
    const ParamId id(param);
    const ParamPlace& place = engine.engine->layout().place(id);
    info.chunk = place.chunk.valid() ? place.chunk.value() : -1;
    info.offset_elements = place.offset.count();
    for (int k = 0; k < CASTOR_STATES; ++k) {
      const std::optional<Tier> home =
          engine.engine->Home(id, static_cast<StateKind>(k));
      if (home) info.homes[k] = static_cast<int32_t>(TierIndex(*home));
    }
    CASTOR_ASSIGN_OR_RETURN(info.updates, engine.engine->UpdateCount(id));
  }
  GiveStruct(info, given);
  return OkStatus();
}

Status ExplainHome(EngineEntry& engine, int32_t param, int32_t state,
                   const char** text) {
  if (text == nullptr) return InvalidArgument("text is null");
  CASTOR_RETURN_IF_ERROR(CheckSealed(engine));
  CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
  CASTOR_ASSIGN_OR_RETURN(const StateKind kind, KindOf(state));
  const ParamId id(param);
  if (!engine.engine->Home(id, kind)) {
    return InvalidArgument(fmt::format(
        "{} has no {}", Quoted(engine.specs[static_cast<size_t>(param)].name),
        engine.engine->state_names().of(kind)));
  }
  engine.explanation =
      engine.engine->ExplainHome(engine.engine->layout().place(id).chunk, kind);
  *text = engine.explanation.c_str();
  return OkStatus();
}

Status CheckValues(const EngineEntry& engine, int32_t param,
                   const float* values, int64_t elements) {
  if (values == nullptr && elements != 0) {
    return InvalidArgument("values is null");
  }
  CASTOR_RETURN_IF_ERROR(CheckSealed(engine));
  CASTOR_RETURN_IF_ERROR(CheckParam(engine, param));
  const int64_t size = engine.sizes[static_cast<size_t>(param)];
  if (elements == size) return OkStatus();
  return InvalidArgument(fmt::format(
      "parameter {} has {} elements, not {}",
      Quoted(engine.specs[static_cast<size_t>(param)].name), size, elements));
}

Status Read(EngineEntry& engine, int32_t param, int32_t state, float* values,
            int64_t elements) {
  CASTOR_ASSIGN_OR_RETURN(const StateKind kind, KindOf(state));
  CASTOR_RETURN_IF_ERROR(CheckValues(engine, param, values, elements));
  const ParamId id(param);
  const std::span<float> out(values, static_cast<size_t>(elements));
  switch (kind) {
    case StateKind::kParam:
    case StateKind::kMaster:
      return engine.engine->ReadParam(id, out);
    case StateKind::kGrad:
      return engine.engine->ReadGrad(id, out);
    default:
      return engine.engine->ReadState(id, kind, out);
  }
}

Status Write(EngineEntry& engine, int32_t param, int32_t state,
             const float* values, int64_t elements) {
  CASTOR_ASSIGN_OR_RETURN(const StateKind kind, KindOf(state));
  CASTOR_RETURN_IF_ERROR(CheckValues(engine, param, values, elements));
  const ParamId id(param);
  const std::span<const float> in(values, static_cast<size_t>(elements));
  CASTOR_RETURN_IF_ERROR(WriteBehindLeases(engine));
  switch (kind) {
    case StateKind::kParam:
    case StateKind::kMaster:
      return engine.engine->WriteParam(id, in);
    case StateKind::kGrad:
      return engine.engine->WriteGrad(id, in);
    default:
      return engine.engine->WriteState(id, kind, in);
  }
}

Status WriteBack(EngineEntry& engine, const int32_t* params,
                 const float* const* values, size_t count) {
  if (count > 0 && (params == nullptr || values == nullptr)) {
    return InvalidArgument("params or values is null; give both");
  }
  CASTOR_RETURN_IF_ERROR(CheckSealed(engine));
  std::vector<ZeroEngine::ParamValues> written;
  written.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    CASTOR_RETURN_IF_ERROR(CheckParam(engine, params[i]));
    const int64_t size = engine.sizes[static_cast<size_t>(params[i])];
    CASTOR_RETURN_IF_ERROR(CheckValues(engine, params[i], values[i], size));
    written.push_back(
        {ParamId(params[i]), {values[i], static_cast<size_t>(size)}});
  }
  CASTOR_RETURN_IF_ERROR(WriteBehindLeases(engine));
  return engine.engine->WriteBack(written);
}

Status SetNumbers(EngineEntry& engine, const char* group,
                  const castor_hyper_parameters* given) {
  if (given == nullptr) return InvalidArgument("numbers is null");
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const castor_hyper_parameters set = TakeStruct(*given);
  constexpr uint32_t kAll = 2 * CASTOR_SET_MOMENTUM - 1;
  if ((set.fields & ~kAll) != 0) {
    return InvalidArgument(fmt::format(
        "fields is {:#x}, which has bits of no number", set.fields));
  }
  const auto given_one = [&](uint32_t field, double number) {
    return (set.fields & field) != 0 ? std::optional(number) : std::nullopt;
  };
  const HyperParameters numbers = {
      .beta1 = given_one(CASTOR_SET_BETA1, set.beta1),
      .beta2 = given_one(CASTOR_SET_BETA2, set.beta2),
      .eps = given_one(CASTOR_SET_EPS, set.eps),
      .weight_decay = given_one(CASTOR_SET_WEIGHT_DECAY, set.weight_decay),
      .momentum = given_one(CASTOR_SET_MOMENTUM, set.momentum)};
  const std::string_view name = group == nullptr ? "" : group;
  if ((set.fields & CASTOR_SET_LR) != 0) {
    CASTOR_RETURN_IF_ERROR(CheckLearningRate(set.lr));
  }
  CASTOR_RETURN_IF_ERROR(engine.engine->SetHyperParameters(name, numbers));
  if ((set.fields & CASTOR_SET_LR) == 0) return OkStatus();
  return engine.engine->SetLearningRate(name, set.lr);
}

Status GetLossScale(const EngineEntry& engine, castor_loss_scale* given) {
  if (given == nullptr) return InvalidArgument("scale is null");
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const LossScaleState& now = engine.engine->loss_scale_state();
  castor_loss_scale scale = {};
  scale.scale = now.scale;
  scale.clean_steps = now.clean_steps;
  scale.skipped_steps = now.skipped_steps;
  scale.overflows_left = now.overflows_left;
  GiveStruct(scale, given);
  return OkStatus();
}

Status SetLossScale(EngineEntry& engine, const castor_loss_scale* given) {
  if (given == nullptr) return InvalidArgument("scale is null");
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const castor_loss_scale set = TakeStruct(*given);
  return engine.engine->RestoreLossScale({.scale = set.scale,
                                          .clean_steps = set.clean_steps,
                                          .overflows_left = set.overflows_left,
                                          .skipped_steps = set.skipped_steps});
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

using castor::c_api::WithEngine;

int32_t castor_engine_param_count(const castor_engine* engine,
                                  int32_t* params) {
  return WithEngine(engine, [&](const castor::c_api::EngineEntry& its) {
    if (params == nullptr) return castor::InvalidArgument("params is null");
    *params = static_cast<int32_t>(its.params);
    return castor::OkStatus();
  });
}

int32_t castor_engine_get_param(const castor_engine* engine, int32_t param,
                                castor_param_info* info) {
  return WithEngine(engine, [&](const castor::c_api::EngineEntry& its) {
    return castor::c_api::GetParam(its, param, info);
  });
}

int32_t castor_engine_find(const castor_engine* engine, const char* name,
                           int32_t* param) {
  return WithEngine(
      engine, [&](const castor::c_api::EngineEntry& its) -> castor::Status {
        if (name == nullptr || param == nullptr) {
          return castor::InvalidArgument("name or param is null; give both");
        }
        CASTOR_ASSIGN_OR_RETURN(const castor::ParamId id,
                                its.engine->Find(name));
        *param = id.value();
        return castor::OkStatus();
      });
}

int32_t castor_engine_explain_home(castor_engine* engine, int32_t param,
                                   int32_t state, const char** text) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::ExplainHome(its, param, state, text);
  });
}

int32_t castor_engine_read(castor_engine* engine, int32_t param, int32_t state,
                           float* values, int64_t elements) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Read(its, param, state, values, elements);
  });
}

int32_t castor_engine_write(castor_engine* engine, int32_t param, int32_t state,
                            const float* values, int64_t elements) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::Write(its, param, state, values, elements);
  });
}

int32_t castor_engine_write_back(castor_engine* engine, const int32_t* params,
                                 const float* const* values, size_t count) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::WriteBack(its, params, values, count);
  });
}

int32_t castor_engine_least_of_ranks(castor_engine* engine, int64_t* words,
                                     size_t count) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    if (words == nullptr && count > 0) {
      return castor::InvalidArgument("words is null");
    }
    return its.engine->LeastOfRanks(std::span(words, count));
  });
}

int32_t castor_engine_set_updates(castor_engine* engine, int32_t param,
                                  int64_t updates) {
  return WithEngine(
      engine, [&](castor::c_api::EngineEntry& its) -> castor::Status {
        CASTOR_RETURN_IF_ERROR(castor::c_api::CheckSealed(its));
        CASTOR_RETURN_IF_ERROR(castor::c_api::CheckParam(its, param));
        return its.engine->SetUpdateCount(castor::ParamId(param), updates);
      });
}

int32_t castor_engine_weight_digest(castor_engine* engine, uint64_t* digest) {
  return WithEngine(
      engine, [&](castor::c_api::EngineEntry& its) -> castor::Status {
        if (digest == nullptr) return castor::InvalidArgument("digest is null");
        CASTOR_ASSIGN_OR_RETURN(*digest, its.engine->WeightDigest());
        return castor::OkStatus();
      });
}

int32_t castor_engine_set_hyper_parameters(
    castor_engine* engine, const char* group,
    const castor_hyper_parameters* numbers) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::SetNumbers(its, group, numbers);
  });
}

int32_t castor_engine_get_loss_scale(const castor_engine* engine,
                                     castor_loss_scale* scale) {
  return WithEngine(engine, [&](const castor::c_api::EngineEntry& its) {
    return castor::c_api::GetLossScale(its, scale);
  });
}

int32_t castor_engine_set_loss_scale(castor_engine* engine,
                                     const castor_loss_scale* scale) {
  return WithEngine(engine, [&](castor::c_api::EngineEntry& its) {
    return castor::c_api::SetLossScale(its, scale);
  });
}

}  // extern "C"
