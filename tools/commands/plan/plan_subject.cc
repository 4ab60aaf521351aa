// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_subject.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/param_spec.h"
#include "chunk/tensor_fields.h"
#include "placement/model_blocks.h"
#include "tools/models/castor_files.h"
#include "tools/models/model_reader.h"
#include "tools/models/model_shape.h"

namespace castor {
namespace {

Result<ReadModelOptions> ReadOptionsOf(const PlanFlags& flags) {
  ReadModelOptions read;
  if (!flags.dtype.empty()) {
    Result<DType> dtype = ReadDType(flags.dtype, DTypeSpelling::kLenient);
    if (!dtype.ok()) {
      return InvalidArgument(
          std::string(dtype.status().WithContext("--dtype").message()));
    }
    read.dtype = *dtype;
  }
  read.freeze = flags.freeze;
  read.only = flags.only;
  if (flags.order == "family") read.order = ParamOrder::kFamily;
  if (flags.order == "file") read.order = ParamOrder::kFile;
  if (flags.order == "natural") read.order = ParamOrder::kNatural;
  if (flags.expert_layout == "fused") {
    read.expert_layout = ExpertLayout::kFused;
  }
  if (flags.expert_layout == "per-expert") {
    read.expert_layout = ExpertLayout::kPerExpert;
  }
  return read;
}

// Names that share a parameter which the list has.
std::vector<TiedParam> TiedParamsOf(const ModelList& model) {
  std::map<std::string, int32_t> ids;
  for (size_t p = 0; p < model.params.size(); ++p) {
    ids.emplace(model.params[p].name, static_cast<int32_t>(p));
  }
  std::vector<TiedParam> tied;
  for (const TiedName& name : model.tied) {
    const auto found = ids.find(name.to);
    if (found != ids.end() && !ids.contains(name.name)) {
      tied.push_back({name.name, ParamId(found->second)});
    }
  }
  return tied;
}

}  // namespace

PlanTotals TotalsOf(const PlanSubject& subject) {
  PlanTotals totals;
  for (const ParamSpec& spec : subject.model.params) {
    // The reader has refused shapes that overflow.
    const Elements count = CountElements(spec.shape, spec.dtype).value();
    totals.elements += count.count();
    totals.bytes += BytesOf(count, spec.dtype);
  }
  return totals;
}

Result<PlanSubject> ReadPlanSubject(const PlanFlags& flags) {
  PlanSubject subject;
  CASTOR_ASSIGN_OR_RETURN(const ReadModelOptions read, ReadOptionsOf(flags));
  if (!flags.files.machine.empty()) {
    CASTOR_ASSIGN_OR_RETURN(subject.machine,
                            ReadMachineFile(flags.files.machine));
  }
  if (!flags.trace.empty()) {
    CASTOR_ASSIGN_OR_RETURN(subject.trace, ReadTraceFile(flags.trace));
  }
  if (!flags.files.layout.empty()) {
    CASTOR_ASSIGN_OR_RETURN(LayoutFile layout,
                            ReadLayoutFile(flags.files.layout));
    subject.layout = std::make_shared<const LayoutFile>(std::move(layout));
  }
  CASTOR_ASSIGN_OR_RETURN(subject.model, ReadModel(flags.model, read));
  CASTOR_ASSIGN_OR_RETURN(subject.shape,
                          ReadModelShape(flags.model, subject.model));
  const std::vector<TiedParam> tied = TiedParamsOf(subject.model);
  const std::vector<ParamSpec>& params = subject.model.params;
  subject.by_block = FindModelBlocks(params, tied, HoldUnit::kBlock);
  subject.by_module = FindModelBlocks(params, tied, HoldUnit::kModule);
  return subject;
}

}  // namespace castor
