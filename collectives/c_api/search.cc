// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The chunk-size search through the C ABI.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/quote.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "chunk/search_result.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/struct_sizes.h"
#include "collectives/c_api/tensor.h"

struct castor_search {
  castor::SearchResult result;
};

namespace castor::c_api {
namespace {

constexpr SearchMode kModes[] = {SearchMode::kUniform, SearchMode::kLayer};

int32_t ModeBit(SearchMode mode) { return 1 << static_cast<int>(mode); }
static_assert(1 << static_cast<int>(SearchMode::kUniform) ==
              CASTOR_SEARCH_UNIFORM);
static_assert(1 << static_cast<int>(SearchMode::kLayer) == CASTOR_SEARCH_LAYER);

Result<SearchOptions> OptionsOf(const castor_search_options* given) {
  SearchOptions options;
  if (given == nullptr) return options;
  // Of the first version that there was.
  CASTOR_RETURN_IF_ERROR(CheckStruct(*given));
  const castor_search_options set = TakeStruct(*given);
  if (set.min_chunk_bytes != 0) options.min_chunk = Bytes(set.min_chunk_bytes);
  if (set.max_chunk_bytes != 0) options.max_chunk = Bytes(set.max_chunk_bytes);
  if (set.align_elements != 0) {
    options.pack.align = Elements(set.align_elements);
  }
  if (set.world != 0) options.pack.world = set.world;
  if (set.device_budget_bytes != 0) {
    options.device_budget = Bytes(set.device_budget_bytes);
  }
  if ((set.modes & CASTOR_SEARCH_CLASSES) != 0) {
    return InvalidArgument(
        "CASTOR_SEARCH_CLASSES is no longer a mode: all chunks of a group have "
        "one size; use CASTOR_SEARCH_UNIFORM or CASTOR_SEARCH_LAYER");
  }
  constexpr int32_t kAll = CASTOR_SEARCH_UNIFORM | CASTOR_SEARCH_LAYER;
  if ((set.modes & ~kAll) != 0) {
    return InvalidArgument(fmt::format(
        "modes is {}, which holds a mode there is not; add values of "
        "CASTOR_SEARCH_...",
        set.modes));
  }
  if (set.modes != 0) {
    options.modes.clear();
    for (const SearchMode mode : kModes) {
      if ((set.modes & ModeBit(mode)) != 0) options.modes.push_back(mode);
    }
  }
  return options;
}

castor_chunk_choice ChoiceOf(const ChunkSizeCandidate& candidate) {
  castor_chunk_choice choice = {};
  choice.mode = ModeBit(candidate.mode);
  choice.chunk_elements = candidate.chunk_size.count();
  choice.chunk_bytes = candidate.chunk_bytes.count();
  choice.chunks = candidate.chunks;
  choice.oversize_chunks = candidate.oversize_chunks;
  choice.allocated_elements = candidate.allocated.count();
  choice.waste_elements = candidate.waste.count();
  choice.gathered_bytes = candidate.gathered_bytes.count();
  return choice;
}

castor_search_group GroupOf(const GroupSearchResult& result) {
  castor_search_group group = {};
  group.dtype = DTypeName(result.dtype).data();  // a literal
  group.frozen = result.trainable ? 0 : 1;
  group.params = result.params;
  group.payload_elements = result.payload.count();
  const auto mode = std::find_if(
      result.modes.begin(), result.modes.end(),
      [&](const ModeResult& m) { return m.mode == result.best.mode; });
  if (mode != result.modes.end()) {
    group.optimal = mode->optimal ? 1 : 0;
    group.lower_bound_waste_elements = mode->lower_bound_waste.count();
  }
  group.best = ChoiceOf(result.best);
  group.recommended = ChoiceOf(result.recommended);
  return group;
}

Status Run(const castor_tensor* tensors, size_t count,
           const castor_search_options* given, castor_search** search) {
  if (search == nullptr || (tensors == nullptr && count > 0)) {
    return InvalidArgument(
        "tensors or search is null; give a list, and a place for the handle");
  }
  *search = nullptr;
  CASTOR_ASSIGN_OR_RETURN(const SearchOptions options, OptionsOf(given));
  std::vector<ParamSpec> params;
  params.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    CASTOR_ASSIGN_OR_RETURN(ParamSpec spec, SpecOf(tensors[i], i));
    params.push_back(std::move(spec));
  }
  auto made = std::make_unique<castor_search>();
  CASTOR_ASSIGN_OR_RETURN(made->result, SearchChunkSize(params, options));
  *search = made.release();
  return OkStatus();
}

Status GetGroup(const castor_search* search, size_t index,
                castor_search_group* group) {
  if (search == nullptr || group == nullptr) {
    return InvalidArgument("search or group is null; give both");
  }
  CASTOR_RETURN_IF_ERROR(CheckStruct(*group));
  const std::vector<GroupSearchResult>& groups = search->result.groups;
  if (index >= groups.size()) {
    return InvalidArgument(fmt::format(
        "there is no group {}: the search has {}", index, groups.size()));
  }
  GiveStruct(GroupOf(groups[index]), group);
  return OkStatus();
}

}  // namespace
}  // namespace castor::c_api

extern "C" {

int32_t castor_search_run(const castor_tensor* tensors, size_t tensor_count,
                          const castor_search_options* options,
                          castor_search** search) {
  return castor::c_api::ThroughTheDoor([&] {
    return castor::c_api::Run(tensors, tensor_count, options, search);
  });
}

size_t castor_search_group_count(const castor_search* search) {
  return search == nullptr ? 0 : search->result.groups.size();
}

int32_t castor_search_get_group(const castor_search* search, size_t index,
                                castor_search_group* group) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::GetGroup(search, index, group); });
}

void castor_search_destroy(castor_search* search) { delete search; }

}  // extern "C"
