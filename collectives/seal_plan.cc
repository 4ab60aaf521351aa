// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/seal_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/tier.h"
#include "chunk/base/units_text.h"
#include "chunk/chunk_packer.h"
#include "chunk/chunk_size_search.h"
#include "chunk/layout_file.h"
#include "collectives/held_moments.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/nvme/nvme_option.h"
#include "placement/static_policy.h"
#include "placement/step_trace.h"
#include "placement/tier_model.h"

namespace castor {
namespace {

PackOptions PackingOf(const ZeroOptions& options, int world) {
  PackOptions pack;
  pack.world = world;
  pack.align = options.align;
  return pack;
}

Result<std::vector<Elements>> GivenSizes(std::span<const ParamSpec> params,
                                         Bytes chunk_size, int world) {
  std::vector<Elements> sizes;
  for (const ParamGroup& group : GroupParams(params)) {
    const Elements size =
        RoundDown(Elements(chunk_size.count() * 8 / DTypeBits(group.dtype)),
                  ChunkQuantum(world));
    if (size <= Elements(0)) {
      return InvalidArgument(fmt::format(
          "chunks of {} bytes are too small: {} ranks need at least {} bytes "
          "of {}",
          chunk_size.count(), world,
          BytesOf(ChunkQuantum(world), group.dtype).count(),
          DTypeName(group.dtype)));
    }
    sizes.push_back(size);
  }
  return sizes;
}

Result<std::vector<Elements>> SearchedSizes(std::span<const ParamSpec> params,
                                            const ZeroOptions& options,
                                            const PackOptions& pack,
                                            Bytes device_budget) {
  SearchOptions search;
  search.pack = pack;
  search.min_chunk = options.min_chunk;
  search.max_chunk =
      options.max_chunk > Bytes(0) ? options.max_chunk : device_budget / 8;
  if (options.max_chunk > Bytes(0) && search.max_chunk < search.min_chunk) {
    return InvalidArgument(fmt::format(
        "the largest chunk of {} bytes is less than the smallest of {} bytes",
        search.max_chunk.count(), search.min_chunk.count()));
  }
  // A small model has small chunks, in as wide a range.
  if (search.max_chunk < search.min_chunk) {
    search.min_chunk = search.max_chunk / 8;
  }
  CASTOR_ASSIGN_OR_RETURN(SearchResult found, SearchChunkSize(params, search));
  std::vector<Elements> sizes;
  for (const GroupSearchResult& group : found.groups) {
    sizes.push_back(group.recommended.chunk_size);
  }
  return sizes;
}

MemoryPlanInput InputOf(const ChunkLayout& layout, const Sharding& sharding,
                        const ZeroOptions& options, const SealBudgets& budgets,
                        std::span<const ChunkBindings> bindings,
                        const SealOptions& declared) {
  MemoryPlanInput input;
  input.layout = &layout;
  input.sharding = sharding;
  input.device_budget = budgets.device;
  input.host_budget = budgets.host;
  input.nvme_budget = budgets.nvme;
  if (CountsNorm(options)) input.norm_bytes = kNormBytes;
  input.whole_grads = options.accumulation == AccumulationOrder::kLast ||
                      (!sharding.replicated(StateKind::kParam) &&
                       EndsWithAllGrads(declared.held));
  input.grads_in_place = options.grad_mode == GradMode::kReuse;
  input.keep_copies = options.keep_copies;
  input.prefetch_depth = options.prefetch_depth;
  input.prefetch = options.prefetch;
  input.step_compute_ns = options.step_compute_ns;
  input.declared = declared;
  input.limits = options.home_limits;
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
  budgets.host = options.host_budget;
  if (!options.nvme.empty()) {
    budgets.nvme = NvmeLimit(options.nvme).value_or(kUnlimitedNvme);
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
  if (options.prefetch_depth < 0) {
    return InvalidArgument(
        fmt::format("prefetch depth {} is negative: 0 turns prefetch off",
                    options.prefetch_depth));
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
  CASTOR_RETURN_IF_ERROR(CheckLossScaling(options.loss_scaling));
  if (options.machine) {
    CASTOR_RETURN_IF_ERROR(CheckTierModel(*options.machine));
  }
  if (options.layout != nullptr && options.chunk_size.has_value()) {
    return InvalidArgument(
        "a layout and a chunk size exclude each other: a layout has its own");
  }
  return ValidatePackOptions(PackingOf(options, world));
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
  return InvalidArgument(
      fmt::format("parameter {} is {}: the engine trains F32, BF16 and F16",
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
  sharding.moments = MomentsOf(options.optimizer);
  sharding.moment_dtype = options.optimizer.moment_dtype;
  sharding.fp32_grads = options.grad_mode == GradMode::kFp32;
  sharding.shard_group = options.shard_group;
  sharding.spans_world = options.optimizer_span == OptimizerSpan::kWorld;
  return sharding;
}

Result<ChunkLayout> LayoutOf(std::span<const ParamSpec> params,
                             const ZeroOptions& options, int world,
                             Bytes device_budget) {
  if (options.layout != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckLayoutFits(*options.layout, params, world));
    return options.layout->layout;
  }
  const PackOptions pack = PackingOf(options, world);
  std::vector<Elements> sizes;
  if (options.chunk_size.has_value()) {
    CASTOR_ASSIGN_OR_RETURN(sizes,
                            GivenSizes(params, *options.chunk_size, world));
  } else {
    CASTOR_ASSIGN_OR_RETURN(
        sizes, SearchedSizes(params, options, pack, device_budget));
  }
  return PackChunks(params, sizes, pack);
}

std::string WastedByGivenSize(const ChunkLayout& layout,
                              std::span<const ParamSpec> params,
                              const ZeroOptions& options, int world) {
  const auto share = [](const ChunkLayout& of) {
    const Bytes wasted = of.allocated_bytes() - of.payload_bytes();
    return 100.0 * static_cast<double>(wasted.count()) /
           static_cast<double>(
               std::max<int64_t>(of.payload_bytes().count(), 1));
  };
  constexpr double kMuch = 10;
  if (!options.chunk_size || options.layout != nullptr ||
      share(layout) <= kMuch) {
    return "";
  }
  // As many chunks as may be meant, and a few more or less.
  ZeroOptions around = options;
  around.chunk_size.reset();
  around.min_chunk = *options.chunk_size / 2;
  around.max_chunk = *options.chunk_size * 2;
  const Result<ChunkLayout> found =
      LayoutOf(params, around, world, options.device_budget);
  if (!found.ok() || share(*found) >= share(layout)) return "";
  std::vector<std::string> sizes;
  for (const GroupInfo& group : found->groups()) {
    sizes.push_back(fmt::format("{} bytes of {}",
                                BytesOf(group.chunk_size, group.dtype).count(),
                                DTypeName(group.dtype)));
  }
  return fmt::format(
      "chunks of {} waste {:.1f} % of the model's {}: a search picks {}, which "
      "{} {:.1f} %; leave the chunk size away to have it searched",
      FormatBytes(*options.chunk_size), share(layout),
      FormatBytes(layout.payload_bytes()), fmt::join(sizes, " and "),
      sizes.size() == 1 ? "wastes" : "waste", share(*found));
}

Result<std::vector<ChunkBindings>> BindingsOf(const ZeroOptions& options,
                                              std::span<const ParamSpec> params,
                                              const ChunkLayout& layout) {
  if (options.home_rules.empty()) return std::vector<ChunkBindings>();
  return BindChunks(options.home_rules, params, layout);
}

Result<MemoryPlan> MemoryOf(const ChunkLayout& layout, const Sharding& sharding,
                            const ZeroOptions& options,
                            const SealBudgets& budgets,
                            std::span<const ChunkBindings> bindings,
                            const SealOptions& declared) {
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
  return PlanMemory(
      InputOf(layout, sharding, options, budgets, bindings, declared));
}

BudgetRaises RaisesOf(const ChunkLayout& layout, const Sharding& sharding,
                      const ZeroOptions& options, const SealBudgets& budgets,
                      std::span<const ChunkBindings> bindings,
                      const SealOptions& declared) {
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
      chunk.value(), StateKindName(state), TierName(tier),
      FormatBytes(memory.placement.bytes[kind][TierIndex(tier)]),
      StateKindName(state));
}

}  // namespace castor
