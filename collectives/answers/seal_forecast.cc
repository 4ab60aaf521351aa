// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/seal_forecast.h"

#include <utility>

#include "collectives/sealing/layout_choice.h"

namespace castor {

Result<SealForecast> ForecastSeal(const EngineRequest& request) {
  CASTOR_RETURN_IF_ERROR(CheckOptions(request.options, request.world));
  for (const ParamSpec& spec : request.params) {
    CASTOR_RETURN_IF_ERROR(CheckTrains(spec, request.options.grad_mode));
    CASTOR_RETURN_IF_ERROR(CountElements(spec.shape, spec.dtype).status());
  }
  const SealBudgets budgets =
      BudgetsOf(request.options, request.communicator_buffers);
  CASTOR_ASSIGN_OR_RETURN(
      ChunkLayout layout,
      ChooseLayout(request.params, request.options,
                   ShardingOf(request.options, request.world, request.rank),
                   budgets, request.declared));
  return ForecastSeal(request, std::move(layout));
}

Result<SealForecast> ForecastSeal(const EngineRequest& request,
                                  ChunkLayout layout) {
  const Sharding sharding =
      ShardingOf(request.options, request.world, request.rank);
  const SealBudgets budgets =
      BudgetsOf(request.options, request.communicator_buffers);
  CASTOR_ASSIGN_OR_RETURN(std::vector<ChunkBindings> bindings,
                          BindingsOf(request.options, request.params, layout));
  CASTOR_ASSIGN_OR_RETURN(MemoryPlan memory,
                          MemoryOf(layout, sharding, request.options, budgets,
                                   bindings, request.declared));
  const ByteTable table = ByteTableOf(memory, request.communicator_buffers);
  return SealForecast{sharding,          budgets, std::move(layout),
                      std::move(memory), table,   std::move(bindings)};
}

}  // namespace castor
