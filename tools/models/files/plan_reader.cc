// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/plan_reader.h"

#include <filesystem>

#include "chunk/text/quote.h"
#include "tools/models/files/input_file.h"

namespace castor {

Result<PlanFile> ReadPlanFile(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxPlanBytes));
  Result<PlanFile> plan = ParsePlan(text);
  if (!plan.ok()) return plan.status().WithContext(QuotedPath(path));
  const std::filesystem::path folder =
      path == "-" ? std::filesystem::path()
                  : std::filesystem::path(path).parent_path();
  CASTOR_RETURN_IF_ERROR(ReadFilesOfPlan(folder.string(), &*plan));
  return plan;
}

}  // namespace castor
