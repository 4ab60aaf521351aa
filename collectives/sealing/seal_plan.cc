// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sealing/seal_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/text/units_text.h"
#include "collectives/loss_scaler.h"
#include "collectives/memory/held_moments.h"
#include "collectives/optimizer_groups.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/nvme/nvme_option.h"
#include "placement/homes/home_limits.h"
#include "placement/homes/static_policy.h"
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"

namespace castor {
namespace {

bool UpdatesWhole(const ZeroOptions& options) {
  if (options.optimizer.kind != OptimizerKind::kCustom) return false;
  return options.optimizer.span == UpdateSpan::kParameter ||
         std::any_of(options.groups.begin(), options.groups.end(),
                     [](const OptimizerGroup& group) {
                       return group.span == UpdateSpan::kParameter;
                     });
}

MemoryPlanInput InputOf(const ChunkLayout& layout, const Sharding& sharding,
                        const ZeroOptions& options, const SealBudgets& budgets,
                        std::span<const ChunkBindings> bindings,
                        const SealOptions& declared) {
  MemoryPlanInput input;
  input.layout = &layout;
  input.sharding = sharding;
  input.device_budget = budgets.device;
  input.device_buffers = budgets.buffers;
  input.host_budget = budgets.host;
  input.nvme_budget = budgets.nvme;
  if (CountsNorm(options)) input.norm_bytes = kNormBytes;
  input.whole_grads = options.accumulation == AccumulationOrder::kLast ||
                      (!sharding.replicated(StateKind::kParam) &&
                       EndsWithAllGrads(declared.held));
  // Neither a gradient in place nor a borrowed one has a slot.
  input.grads_in_place =
      options.grad_mode == GradMode::kReuse || sharding.borrows_grads;
  input.keep_copies = options.keep_copies;
  input.prefetch = options.prefetch;
  input.step_compute_ns = options.step_compute_ns;
  input.whole_updates = UpdatesWhole(options);
  // A program's update writes over its states.
  input.spare_places = options.guess_updates &&
                       options.optimizer.kind != OptimizerKind::kCustom &&
                       options.grad_mode == GradMode::kSeparate;
  input.declared = declared;
  input.bindings.assign(bindings.begin(), bindings.end());
  input.machine = options.machine;
  return input;
}

Status CheckGroups(const ZeroOptions& options, int world) {
  const int group = options.shard_group;
  if (group < 0 || (group > 0 && world % group != 0)) {
    std::vector<int> sizes;
    for (int size = 1; size <= world; ++size) {
      if (world % size == 0) sizes.push_back(size);
    }
    return InvalidArgument(fmt::format(
        "{} {} cannot be cut into shard groups of {}: groups of {} can be "
        "formed, and 0 is one group of all",
        world, world == 1 ? "rank" : "ranks", group, fmt::join(sizes, ", ")));
  }
  if (options.optimizer_span == OptimizerSpan::kWorld && options.stage == 0) {
    return InvalidArgument(
        "stage 0 keeps optimizer states whole on every rank, so they cannot "
        "span the world: choose stage 1 to 3, or let them span the group");
  }
  return OkStatus();
}

}  // namespace

SealBudgets BudgetsOf(const ZeroOptions& options, Bytes communicator_buffers) {
  SealBudgets budgets;
  budgets.device = options.device_budget - communicator_buffers;
  budgets.buffers = communicator_buffers;
  budgets.host = options.host_budget;
  if (!options.nvme.empty()) {
    budgets.nvme = NvmeLimit(options.nvme).value_or(kUnlimited);
  }
  return budgets;
}

Status CheckOptions(const ZeroOptions& options, int world) {
  if (options.stage < 0 || options.stage > 3) {
    return InvalidArgument(fmt::format(
        "stage {} does not exist: ZeRO has stages 0 to 3", options.stage));
  }
  CASTOR_RETURN_IF_ERROR(CheckGroups(options, world));
  if (!(options.clip_norm >= 0)) {
    return InvalidArgument(fmt::format(
        "a gradient norm cannot be clipped to {}: give a positive norm, or 0 "
        "for no clipping",
        options.clip_norm));
  }
  if (options.values_piece < Bytes(8)) {
    return InvalidArgument(fmt::format(
        "values cannot be read in pieces of {} bytes: give 8 at least",
        options.values_piece.count()));
  }
  if (options.prefetch.depth < 0) {
    return InvalidArgument(
        fmt::format("prefetch depth {} is negative: 0 turns prefetch off",
                    options.prefetch.depth));
  }
  if (options.step_compute_ns < 0 || options.step_compute_ns > kMaxStepNs) {
    return InvalidArgument(fmt::format(
        "a step cannot compute for {} ns: give up to {}, or 0 where nobody "
        "knows",
        options.step_compute_ns, kMaxStepNs));
  }
  if (options.grad_mode == GradMode::kReuse &&
      options.accumulation == AccumulationOrder::kLast) {
    return InvalidArgument(
        "gradients that are written over parameters are of one micro-batch: "
        "there is no order in which several come together; leave the "
        "accumulation order away, or take another gradient mode");
  }
  CASTOR_RETURN_IF_ERROR(ValidateOptimizerOptions(options.optimizer));
  CASTOR_RETURN_IF_ERROR(
      CheckOptimizerGroups(options.optimizer, options.groups));
  if (options.home_limits) {
    CASTOR_RETURN_IF_ERROR(
        ResolveLimits(*options.home_limits, StateNamesOf(options.optimizer))
            .status());
  }
  CASTOR_RETURN_IF_ERROR(CheckLossScaling(options.loss_scaling));
  if (options.machine) {
    CASTOR_RETURN_IF_ERROR(CheckTierModel(*options.machine));
  }
  if (options.layout != nullptr && options.chunk_size.has_value()) {
    return InvalidArgument(
        "a layout and a chunk size exclude each other: a layout has its own");
  }
  return ValidatePackOptions({.world = world, .align = options.align});
}

Status CheckTrains(const ParamSpec& spec, GradMode mode) {
  if (mode == GradMode::kReuse && spec.trainable && spec.dtype == DType::kF32) {
    return InvalidArgument(fmt::format(
        "parameter {} is F32 and has no master: once its gradient is written "
        "over it, nothing is left to restore it from; make it BF16 or F16, or "
        "take another gradient mode",
        spec.name));
  }
  if (spec.dtype == DType::kF32 || spec.dtype == DType::kBF16 ||
      spec.dtype == DType::kF16) {
    return OkStatus();
  }
  if (spec.dtype == DType::kU8 && !spec.trainable) return OkStatus();
  return InvalidArgument(
      fmt::format("parameter {} is {}: the engine trains F32, BF16 and F16, "
                  "and holds U8 where it is frozen",
                  spec.name, DTypeName(spec.dtype)));
}

bool CountsNorm(const ZeroOptions& options) {
  return options.clip_norm > 0 || options.count_norm ||
         options.loss_scaling.kind != LossScalingKind::kNone;
}

Sharding ShardingOf(const ZeroOptions& options, int world, int rank) {
  Sharding sharding;
  sharding.stage = options.stage;
  sharding.world = world;
  sharding.rank = rank;
  sharding.states = StateNamesOf(options.optimizer);
  sharding.moment_dtype = options.optimizer.moment_dtype;
  sharding.fp32_grads = options.grad_mode == GradMode::kFp32;
  sharding.shard_group = options.shard_group;
  sharding.spans_world = options.optimizer_span == OptimizerSpan::kWorld;
  return sharding;
}

Result<std::vector<ChunkBindings>> BindingsOf(const ZeroOptions& options,
                                              std::span<const ParamSpec> params,
                                              const ChunkLayout& layout) {
  if (options.home_rules.empty()) return std::vector<ChunkBindings>();
  return BindChunks(options.home_rules, params, layout,
                    StateNamesOf(options.optimizer));
}

Result<MemoryPlan> MemoryOf(const ChunkLayout& layout, const Sharding& sharding,
                            const ZeroOptions& options,
                            const SealBudgets& budgets,
                            std::span<const ChunkBindings> bindings,
                            const SealOptions& declared,
                            const std::optional<BudgetRaises>& offers) {
  for (const HeldTogether& held : declared.held) {
    for (const std::vector<ParamId>* ids : {&held.params, &held.grads}) {
      for (ParamId id : *ids) {
        if (!id.valid() || id.index() >= layout.places().size()) {
          return InvalidArgument(fmt::format(
              "a declared moment holds parameter {}, which is not registered",
              id.value()));
        }
      }
    }
  }
  MemoryPlanInput input =
      InputOf(layout, sharding, options, budgets, bindings, declared);
  input.offers = offers;
  if (options.home_limits) {
    CASTOR_ASSIGN_OR_RETURN(
        input.limits, ResolveLimits(*options.home_limits, sharding.states));
  }
  return PlanMemory(input);
}

SealOptions FirstStepOf(const ChunkLayout& layout,
                        std::span<const ParamSpec> params,
                        const SealOptions& declared) {
  SealOptions first = declared;
  if (!declared.grow || !declared.held.empty()) return first;
  first.estimate = true;
  for (size_t c = 0; c < layout.chunks().size(); ++c) {
    HeldTogether& moment = first.held.emplace_back();
    moment.params = layout.chunk(ChunkId(static_cast<int32_t>(c))).params;
    const bool trains = !moment.params.empty() &&
                        params[moment.params.front().index()].trainable;
    if (trains) moment.grads = moment.params;
  }
  return first;
}

BudgetRaises RaisesOf(const ChunkLayout& layout, const Sharding& sharding,
                      const ZeroOptions& options, const SealBudgets& budgets,
                      std::span<const ChunkBindings> bindings,
                      const SealOptions& declared) {
  // What was asked of homes is kept, whatever the budgets.
  if (options.home_limits) return {};
  return SmallestRaises(
      InputOf(layout, sharding, options, budgets, bindings, declared));
}

std::string WhyHome(const MemoryPlan& memory, const ZeroOptions& options,
                    std::span<const ChunkBindings> bindings,
                    std::span<const ParamSpec> params, ChunkId chunk,
                    StateKind state) {
  const auto kind = static_cast<size_t>(state);
  const bool ruled =
      !bindings.empty() && bindings[chunk.index()][kind].rule >= 0;
  if (ruled || options.home_limits) {
    return ExplainPlacement(memory.placement, bindings, options.home_rules,
                            params, chunk, state);
  }
  const Tier tier = memory.placement.homes[chunk.index()][kind];
  return fmt::format(
      "chunk {}: {} on {} by the budgets, which put {} of {} there",
      chunk.value(), memory.placement.names.of(state), TierName(tier),
      FormatBytes(memory.placement.bytes[kind][TierIndex(tier)]),
      memory.placement.names.of(state));
}

}  // namespace castor
