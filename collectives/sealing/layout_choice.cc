// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sealing/layout_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/chunk_size_search.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout/size_family.h"
#include "chunk/layout_file.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/memory/budget_raises.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/placement_rules.h"
#include "placement/state_kind.h"

namespace castor {
namespace {

PackOptions PackingOf(const ZeroOptions& options, int world) {
  PackOptions pack;
  pack.world = world;
  pack.align = IsBlocks8(options.optimizer.moment_dtype)
                   ? RoundUp(options.align, kScaleBlock)
                   : options.align;
  pack.shards = ShardingOf(options, world, 0).pieces(OptimizerState(0));
  return pack;
}

Result<std::vector<Elements>> GivenSizes(std::span<const ParamSpec> params,
                                         Bytes chunk_size,
                                         const PackOptions& pack) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<SizeFamily> families,
                          SizeFamilies(params, pack));
  std::vector<Elements> sizes;
  for (const SizeFamily& family : families) {
    const Elements size =
        RoundDown(Elements(chunk_size.count() * 8 / DTypeBits(family.dtype)),
                  family.quantum);
    if (size <= Elements(0)) {
      return InvalidArgument(fmt::format(
          "chunks of {} bytes are too small: {} ranks need at least {} bytes "
          "of {}",
          chunk_size.count(), pack.world,
          BytesOf(family.quantum, family.dtype).count(),
          DTypeName(family.dtype)));
    }
    sizes.push_back(size);
  }
  return SizesOfGroups(families, sizes);
}

// A layout that was made elsewhere leaves parameters whole, too.
Status CheckWhole(const ChunkLayout& layout, std::span<const ParamSpec> params,
                  const PackOptions& pack) {
  for (size_t p = 0; p < params.size(); ++p) {
    const ParamPlace& place = layout.places()[p];
    if (!params[p].whole || !place.chunk.valid()) continue;
    const Elements shard = layout.chunk(place.chunk).size / pack.shards;
    if (place.offset / shard ==
        (place.offset + place.size - Elements(1)) / shard) {
      continue;
    }
    return InvalidArgument(fmt::format(
        "the layout cuts parameter {}, which is updated as a whole, between {} "
        "shards: leave the layout away",
        Quoted(params[p].name), pack.shards));
  }
  return OkStatus();
}

// Of which parameters the options keep moments in 8 bits.
std::vector<ParamSpec> Marked(std::span<const ParamSpec> params,
                              const ZeroOptions& options) {
  std::vector<ParamSpec> marked(params.begin(), params.end());
  if (!IsBlocks8(options.optimizer.moment_dtype) ||
      MomentsOf(options.optimizer) == 0) {
    return marked;
  }
  for (ParamSpec& spec : marked) {
    const Result<Elements> size = CountElements(spec.shape, spec.dtype);
    spec.moments8 = spec.trainable && size.ok() && *size >= kLeastMoments8;
  }
  return marked;
}

Result<std::vector<Elements>> SearchedSizes(std::span<const ParamSpec> params,
                                            const ChunkBounds& bounds,
                                            const PackOptions& pack) {
  if (bounds.most < bounds.least) {
    return InvalidArgument(fmt::format(
        "the largest chunk of {} bytes is less than the smallest of {} bytes",
        bounds.most.count(), bounds.least.count()));
  }
  SearchOptions search;
  search.pack = pack;
  search.min_chunk = bounds.least;
  search.max_chunk = bounds.most;
  search.modes = {SearchMode::kUniform, SearchMode::kLayer};
  CASTOR_ASSIGN_OR_RETURN(const std::vector<SizeFamily> families,
                          SizeFamilies(params, pack));
  CASTOR_ASSIGN_OR_RETURN(SearchResult found, SearchChunkSize(params, search));
  std::vector<Elements> sizes;
  for (const GroupSearchResult& group : found.groups) {
    sizes.push_back(group.recommended.chunk_size);
  }
  return SizesOfGroups(families, sizes);
}

// Whether options leave the chunk size to be searched, and nothing says up to
// which size.
bool SearchesFreely(const ZeroOptions& options) {
  return options.layout == nullptr && !options.chunk_size &&
         options.max_chunk == Bytes(0);
}

// A layout, and what is known of its memory.
struct Candidate {
  ChunkLayout layout;
  std::vector<ChunkBindings> bindings;
  SealOptions held;
};

Result<Candidate> Made(std::span<const ParamSpec> params,
                       std::span<const Elements> sizes,
                       const ZeroOptions& options, const PackOptions& pack,
                       const SealOptions& declared) {
  CASTOR_ASSIGN_OR_RETURN(ChunkLayout layout, PackChunks(params, sizes, pack));
  CASTOR_ASSIGN_OR_RETURN(std::vector<ChunkBindings> bindings,
                          BindingsOf(options, params, layout));
  SealOptions held = FirstStepOf(layout, params, declared);
  return Candidate{std::move(layout), std::move(bindings), std::move(held)};
}

}  // namespace

Status CheckMomentChunks(const ChunkLayout& layout,
                         std::span<const ParamSpec> params,
                         const ZeroOptions& options) {
  if (!IsBlocks8(options.optimizer.moment_dtype)) return OkStatus();
  const std::vector<ParamSpec> marked = Marked(params, options);
  for (size_t p = 0; p < marked.size(); ++p) {
    const ParamPlace& place = layout.places()[p];
    if (!place.chunk.valid()) continue;
    const auto group = static_cast<size_t>(layout.chunk(place.chunk).group);
    if (marked[p].moments8 == layout.groups()[group].moments8) continue;
    return InvalidArgument(fmt::format(
        "the layout packs parameter {} among parameters {} moments of 8 bits, "
        "which need chunks of their own: take the layout of a run that has "
        "such moments, or none",
        Quoted(marked[p].name), marked[p].moments8 ? "without" : "with"));
  }
  return OkStatus();
}

std::vector<ChunkBounds> BoundsFor(std::span<const ParamSpec> params,
                                   const ZeroOptions& options, int world,
                                   Bytes device_budget) {
  const auto said = [](Bytes size) {
    return size > Bytes(0) ? std::optional(size) : std::nullopt;
  };
  return ChunkBoundsFor(ModelBytes(params), device_budget, world,
                        said(options.min_chunk), said(options.max_chunk));
}

Result<ChunkLayout> LayoutOf(std::span<const ParamSpec> unmarked,
                             const ZeroOptions& options, int world) {
  CASTOR_CHECK(!SearchesFreely(options));
  const std::vector<ParamSpec> params = Marked(unmarked, options);
  if (options.layout != nullptr) {
    CASTOR_RETURN_IF_ERROR(CheckLayoutFits(*options.layout, params, world));
    CASTOR_RETURN_IF_ERROR(
        CheckWhole(options.layout->layout, params, PackingOf(options, world)));
    CASTOR_RETURN_IF_ERROR(
        CheckMomentChunks(options.layout->layout, params, options));
    return options.layout->layout;
  }
  const PackOptions pack = PackingOf(options, world);
  std::vector<Elements> sizes;
  if (options.chunk_size.has_value()) {
    CASTOR_ASSIGN_OR_RETURN(sizes,
                            GivenSizes(params, *options.chunk_size, pack));
  } else {
    const ChunkBounds bounds =
        BoundsFor(params, options, world, options.max_chunk).front();
    CASTOR_ASSIGN_OR_RETURN(sizes, SearchedSizes(params, bounds, pack));
  }
  return PackChunks(params, sizes, pack);
}

Result<ChunkLayout> ChooseLayout(std::span<const ParamSpec> unmarked,
                                 const ZeroOptions& options,
                                 const Sharding& sharding,
                                 const SealBudgets& budgets,
                                 const SealOptions& declared) {
  const int world = sharding.world;
  if (!SearchesFreely(options)) return LayoutOf(unmarked, options, world);
  const std::vector<ParamSpec> params = Marked(unmarked, options);
  const PackOptions pack = PackingOf(options, world);
  std::vector<Elements> before;
  std::vector<BudgetRaises> raises;
  std::optional<Candidate> nearest;  // lacks least of the device
  std::optional<Bytes> lacks;
  for (const ChunkBounds& bounds :
       BoundsFor(params, options, world, budgets.device)) {
    CASTOR_ASSIGN_OR_RETURN(std::vector<Elements> sizes,
                            SearchedSizes(params, bounds, pack));
    if (nearest && sizes == before) continue;
    before = sizes;
    CASTOR_ASSIGN_OR_RETURN(Candidate made,
                            Made(params, sizes, options, pack, declared));
    const Status served = MemoryOf(made.layout, sharding, options, budgets,
                                   made.bindings, made.held)
                              .status();
    if (served.ok()) return std::move(made.layout);
    if (served.code() != ErrorCode::kInfeasible) return served;
    const BudgetRaises& raise = raises.emplace_back(RaisesOf(
        made.layout, sharding, options, budgets, made.bindings, made.held));
    if (nearest && (!raise.device || (lacks && *raise.device >= *lacks))) {
      continue;
    }
    lacks = raise.device;
    nearest = std::move(made);
  }
  return MemoryOf(
             nearest->layout, sharding, options, budgets, nearest->bindings,
             nearest->held,
             NearestRaises(raises, budgets.device, budgets.host, budgets.nvme))
      .status();
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
  const Result<ChunkLayout> found = LayoutOf(params, around, world);
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

}  // namespace castor
