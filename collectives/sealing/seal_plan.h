// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_SEALING_SEAL_PLAN_H_
#define CASTOR_COLLECTIVES_SEALING_SEAL_PLAN_H_

// What Seal decides before it takes any memory, as functions of what it is
// given: the layout, each rank's share of it, and how its budgets are cut.
// ZeroEngine asks here, and so does whoever wants to know it without one
// (collectives/answers/seal_forecast.h). Pure functions, thread-safe.

#include <optional>
#include <span>
#include <string>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/param_spec.h"
#include "collectives/memory/budget_raises.h"
#include "collectives/memory/memory_plan.h"
#include "collectives/memory/sharding.h"
#include "collectives/zero_options.h"
#include "placement/placement_rules.h"
#include "placement/run_event.h"

namespace castor {

// The least of every budget among ranks.
struct SealBudgets {
  Bytes device;  // the communicator's buffers taken off
  Bytes host;
  std::optional<Bytes> nvme;  // empty: there is no NVMe tier
  Bytes buffers;              // the communicator's, on the device
};

// More than any machine has, and sums of it do not overflow: what a drive
// without a limit may hold, and a device budget that is asked for.
inline constexpr Bytes kUnlimited{INT64_MAX / 4};

// Those of one rank.
SealBudgets BudgetsOf(const ZeroOptions& options, Bytes communicator_buffers);

// InvalidArgument where options have no meaning on any budget, or for that many
// ranks: limits of states that the optimizer does not keep have none.
Status CheckOptions(const ZeroOptions& options, int world);
// InvalidArgument where the engine does not train parameters of that type, or
// not with gradients written over them.
Status CheckTrains(const ParamSpec& spec, GradMode mode);

// Whether squares of gradients are summed up: for the norm, and because the
// sum tells whether any of them is infinite or not a number.
bool CountsNorm(const ZeroOptions& options);

Sharding ShardingOf(const ZeroOptions& options, int world, int rank);

// What rules say of homes, by ChunkId; empty where there are none. As
// BindChunks.
Result<std::vector<ChunkBindings>> BindingsOf(const ZeroOptions& options,
                                              std::span<const ParamSpec> params,
                                              const ChunkLayout& layout);

// How the budgets are cut; `bindings` are those of the options' rules
// (BindChunks), empty where there are none. Infeasible as PlanMemory;
// InvalidArgument where a declared moment holds what is no parameter. `offers`:
// what a refusal names in place of RaisesOf.
Result<MemoryPlan> MemoryOf(const ChunkLayout& layout, const Sharding& sharding,
                            const ZeroOptions& options,
                            const SealBudgets& budgets,
                            std::span<const ChunkBindings> bindings,
                            const SealOptions& declared,
                            const std::optional<BudgetRaises>& offers = {});

// What memory is planned for: `declared`, and where the first step is to show
// what it holds and nobody estimates it, one chunk and its gradient at a time.
SealOptions FirstStepOf(const ChunkLayout& layout,
                        std::span<const ParamSpec> params,
                        const SealOptions& declared);

// By how much these budgets fall short of that; none where they suffice.
BudgetRaises RaisesOf(const ChunkLayout& layout, const Sharding& sharding,
                      const ZeroOptions& options, const SealBudgets& budgets,
                      std::span<const ChunkBindings> bindings,
                      const SealOptions& declared);

// Why a state of a chunk is where it is, in a sentence: a rule and the
// parameter that it holds for, limits, or the budgets. REQUIRES: `memory` is
// MemoryOf's, for these options, parameters and bindings.
std::string WhyHome(const MemoryPlan& memory, const ZeroOptions& options,
                    std::span<const ChunkBindings> bindings,
                    std::span<const ParamSpec> params, ChunkId chunk,
                    StateKind state);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_SEALING_SEAL_PLAN_H_
