// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/plan_reader.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "chunk/base/quote.h"
#include "tools/models/castor_files.h"
#include "tools/models/input_file.h"

namespace castor {

Result<PlanFile> ReadPlanFile(const std::string& path) {
  CASTOR_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CASTOR_ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxPlanBytes));
  Result<PlanFile> plan = ParsePlan(text);
  if (!plan.ok()) return plan.status().WithContext(QuotedPath(path));
  const std::filesystem::path folder =
      path == "-" ? std::filesystem::path()
                  : std::filesystem::path(path).parent_path();
  if (!plan->files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(
        LayoutFile layout,
        ReadLayoutFile((folder / plan->files.layout).string()));
    plan->engine.layout = std::make_shared<const LayoutFile>(std::move(layout));
  }
  if (!plan->files.machine.empty()) {
    CASTOR_ASSIGN_OR_RETURN(
        plan->engine.machine,
        ReadMachineFile((folder / plan->files.machine).string()));
  }
  return plan;
}

}  // namespace castor
