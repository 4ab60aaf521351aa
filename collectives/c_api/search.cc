// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The chunk-size search through the C ABI.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "collectives/answers/search_answer.h"
#include "collectives/answers/search_words.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/tensor.h"

namespace castor::c_api {
namespace {

Result<std::string> Search(TensorList tensors, std::string_view options) {
  CASTOR_ASSIGN_OR_RETURN(const SearchQuestion question,
                          ReadSearchQuestion(options));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<ParamSpec> params,
                          SpecsOf(tensors));
  const SearchOptions search = SearchOf(question, params);
  CASTOR_ASSIGN_OR_RETURN(const SearchResult result,
                          SearchChunkSize(params, search));
  CASTOR_ASSIGN_OR_RETURN(const std::optional<RuleReport> rule,
                          ApplyRule(params, search, result));
  std::optional<TierModel> machine;
  if (!(question.declared == TierModel{})) machine = question.declared;
  // As the command has it of a list.
  const SearchedModel model = {.source = "castor_search_run",
                               .order = "file",
                               .tensors = static_cast<int64_t>(tensors.size())};
  return SearchJson(model, {search, result, rule, machine}).Dump(2) + '\n';
}

}  // namespace
}  // namespace castor::c_api

extern "C" int32_t castor_search_run(const castor_tensor* tensors, size_t count,
                                     const char* options, const char** json) {
  // Made by threads that search, and only these.
  thread_local std::string answer;
  return castor::c_api::ThroughTheDoor([&] {
    return castor::c_api::AnswerAsText(tensors, count, options,
                                       castor::c_api::Search, &answer, json);
  });
}
