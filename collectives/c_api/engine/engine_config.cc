// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/c_api/engine/engine_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "chunk/text/quote.h"
#include "collectives/options/option_table.h"
#include "collectives/zero_config.h"

namespace castor::c_api {
namespace {

// A plan is written with "moments" and the norm for one optimizer, which the
// config says: both may name it.
Status CheckSaidOnce(const std::vector<std::string>& said) {
  const std::vector<std::string> planned = PlanKeys();
  for (const std::string& key : said) {
    if (std::find(planned.begin(), planned.end(), key) == planned.end()) {
      continue;
    }
    return InvalidArgument(
        fmt::format("{} is said by the plan: leave it or the plan away", key));
  }
  return OkStatus();
}

Result<PlanFile> ReadPlan(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(const std::string text,
                          ReadNamedFile(path, kMaxPlanBytes));
  Result<PlanFile> plan = ParsePlan(text);
  if (!plan.ok()) return plan;
  CASTOR_RETURN_IF_ERROR(ReadFilesOfPlan(
      std::filesystem::path(path).parent_path().string(), &*plan));
  return plan;
}

}  // namespace

Result<EngineConfig> ReadEngineConfig(std::string_view text) {
  EngineConfig config;
  // A garbage collector may be what ends a lease.
  config.options.own_lease_ends = true;
  EngineFiles files;
  std::string plan;
  OptionTable table = EngineOptions(&config.options, &files);
  table.Text("plan", &plan);
  CASTOR_ASSIGN_OR_RETURN(const std::vector<std::string> said,
                          ReadConfig(text, table));
  CASTOR_RETURN_IF_ERROR(ReadEngineFiles(files, &config.options));
  if (plan.empty()) return config;
  CASTOR_RETURN_IF_ERROR(CheckSaidOnce(said));
  const auto apply = [&]() -> Status {
    CASTOR_ASSIGN_OR_RETURN(config.plan, ReadPlan(plan));
    return ApplyPlan(*config.plan, &config.options);
  };
  CASTOR_RETURN_IF_ERROR(apply().WithContext(QuotedPath(plan)));
  return config;
}

}  // namespace castor::c_api
