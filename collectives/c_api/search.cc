// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The chunk-size search through the C ABI.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/chunk_size_search.h"
#include "chunk/param_spec.h"
#include "collectives/c_api/castor.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/tensor.h"
#include "collectives/search_answer.h"
#include "collectives/search_words.h"

namespace castor::c_api {
namespace {

Result<std::string> Search(const castor_tensor* tensors, size_t count,
                           const char* options) {
  CASTOR_ASSIGN_OR_RETURN(
      const SearchQuestion question,
      ReadSearchQuestion(options == nullptr ? "{}" : options));
  CASTOR_ASSIGN_OR_RETURN(const std::vector<ParamSpec> params,
                          SpecsOf(tensors, count));
  CASTOR_ASSIGN_OR_RETURN(const SearchResult result,
                          SearchChunkSize(params, question.search));
  CASTOR_ASSIGN_OR_RETURN(
      const std::vector<RuleReport> rules,
      ApplyRules(question.rules, params, question.search, result));
  std::optional<TierModel> machine;
  if (!(question.declared == TierModel{})) machine = question.declared;
  // As the command has it of a list.
  const SearchedModel model = {.source = "castor_search_run",
                               .order = "file",
                               .tensors = static_cast<int64_t>(count)};
  return SearchJson(model, {question.search, result, rules, machine}).Dump(2) +
         '\n';
}

Status Run(const castor_tensor* tensors, size_t count, const char* options,
           const char** json) {
  // Made by threads that search, and only these.
  thread_local std::string answer;
  if (json == nullptr || (tensors == nullptr && count > 0)) {
    return InvalidArgument(
        "tensors or json is null; give a list, and a place for the text");
  }
  *json = nullptr;
  CASTOR_ASSIGN_OR_RETURN(answer, Search(tensors, count, options));
  *json = answer.c_str();
  return OkStatus();
}

}  // namespace
}  // namespace castor::c_api

extern "C" int32_t castor_search_run(const castor_tensor* tensors, size_t count,
                                     const char* options, const char** json) {
  return castor::c_api::ThroughTheDoor(
      [&] { return castor::c_api::Run(tensors, count, options, json); });
}
