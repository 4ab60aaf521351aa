// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/zoo/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/chunk_size_search.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/family_model.h"

namespace castor {

Result<std::vector<ParamSpec>> ZooParams(const ZooModel& model,
                                         ExpertLayout experts) {
  const auto broken = [&model](const Status& status) {
    return Internal(fmt::format("the zoo's config of {}: {}", model.name,
                                status.message()));
  };
  const Result<ConfigValues> config = ConfigValues::Parse(model.config);
  if (!config.ok()) return broken(config.status());
  const Result<std::string> family = config->model_type();
  if (!family.ok()) return broken(family.status());
  if (!IsKnownFamily(*family)) {
    return Internal(fmt::format("the zoo's config of {} is of no known family",
                                model.name));
  }
  Result<FamilyModel> built = BuildFamilyModel(*config, experts);
  if (!built.ok()) return broken(built.status());
  // Whatever the files are in, the models are compared in one type.
  for (ParamSpec& param : built->params) param.dtype = DType::kBF16;
  return std::move(built->params);
}

Result<ZooRow> SearchZooModel(const ZooModel& model, ExpertLayout experts,
                              const SearchQuestion& question) {
  if (question.search.device_budget) {
    return InvalidArgument(
        "a device budget is for one model, and the zoo has many; name a model, "
        "or leave the budget out");
  }
  CASTOR_ASSIGN_OR_RETURN(const std::vector<ParamSpec> params,
                          ZooParams(model, experts));
  ZooRow row;
  row.search = SearchOf(question, params);
  CASTOR_ASSIGN_OR_RETURN(SearchResult found,
                          SearchChunkSize(params, row.search));
  CASTOR_CHECK_EQ(found.groups.size(), 1u);
  GroupSearchResult& group = found.groups.front();
  row.name = model.name;
  row.source = model.source;
  if (model.has_experts) row.experts = experts;
  row.tensors = group.params;
  row.parameters = group.payload;
  const ChunkSizeCandidate* best = nullptr;
  for (const ChunkSizeCandidate& candidate : group.candidates) {
    if (candidate.chunk_bytes > row.search.max_chunk) continue;
    if (best == nullptr || candidate.waste < best->waste) best = &candidate;
  }
  row.best = best == nullptr ? group.best : *best;
  row.modes = std::move(group.modes);
  CASTOR_ASSIGN_OR_RETURN(const std::vector<RuleParam> seen,
                          RuleParams(params));
  CASTOR_ASSIGN_OR_RETURN(
      row.gemini, ApplyGeminiRule(seen, {.world = row.search.pack.world}));
  return row;
}

Result<std::vector<ZooRow>> SearchZoo(const SearchQuestion& question) {
  std::vector<ZooRow> rows;
  const auto add = [&](const ZooModel& model, ExpertLayout experts) -> Status {
    Result<ZooRow> row = SearchZooModel(model, experts, question);
    if (!row.ok()) return row.status();
    rows.push_back(*std::move(row));
    return OkStatus();
  };
  for (const ZooModel& model : ZooModels()) {
    if (model.has_experts) {
      CASTOR_RETURN_IF_ERROR(add(model, ExpertLayout::kPerExpert));
    }
    CASTOR_RETURN_IF_ERROR(add(model, ExpertLayout::kFused));
  }
  return rows;
}

}  // namespace castor
