// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/model_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "chunk/layout/tensor_fields.h"
#include "chunk/text/quote.h"
#include "tools/models/families/expert_layout.h"
#include "tools/models/files/castor_files.h"
#include "tools/models/model_source.h"
#include "tools/models/param_filter.h"
#include "tools/models/param_order.h"

namespace castor {
namespace {

Status ChooseExperts(const std::optional<ExpertLayout>& wanted,
                     ModelList& list) {
  const std::optional<ExpertLayout> present = FindExpertLayout(list.params);
  if (wanted) {
    if (!present) {
      list.notes.push_back(
          "the model has no experts that could be held in another way, so "
          "--expert-layout makes no difference");
    }
    return ApplyExpertLayout(*wanted, list.params);
  }
  if (present) {
    list.notes.push_back(fmt::format(
        "the experts are {}; trainers may hold them otherwise, which "
        "--expert-layout fused|per-expert tells",
        *present == ExpertLayout::kFused ? "fused to a tensor per layer"
                                         : "held one by one"));
  }
  return OkStatus();
}

// Names are unique but for experts split beside others of the same name.
bool InNaturalOrder(const ParamSpec& a, const ParamSpec& b) {
  return a.name == b.name ? a.shape < b.shape : NaturalLess(a.name, b.name);
}

// Family order; false where nothing tells it.
bool OrderByFamily(const ModelSource& source, ModelList& list) {
  if (source.kind == SourceKind::kConfig) return true;  // built in it
  return source.family && ApplyFamilyOrder(*source.family, list);
}

Status OrderByTrace(const std::string& path, ModelList& list) {
  CASTOR_ASSIGN_OR_RETURN(const TraceFile trace, ReadTraceFile(path));
  return ApplyTraceOrder(trace, list).WithContext(QuotedPath(path));
}

Status OrderParams(const ModelSource& source,
                   const std::optional<ParamOrder>& wanted, ModelList& list) {
  if (wanted == ParamOrder::kFile && source.kind == SourceKind::kConfig) {
    return InvalidArgument(
        "a config.json lists no tensors, so it has no file order; use --order "
        "family or natural");
  }
  // Whoever wrote a list put its lines where they are.
  if (wanted == ParamOrder::kFile ||
      (!wanted && source.kind == SourceKind::kList)) {
    list.order = ParamOrder::kFile;
    return OkStatus();
  }
  if (wanted != ParamOrder::kNatural) {
    if (OrderByFamily(source, list)) {
      list.order = ParamOrder::kFamily;
      return OkStatus();
    }
    if (wanted == ParamOrder::kFamily) {
      return InvalidArgument(
          "no config.json of a known family tells the order of these names; "
          "use --order natural or file, or put the model's config.json beside "
          "its weights");
    }
    if (source.family) {
      list.notes.push_back(
          fmt::format("the config.json beside it is of family {}, but none of "
                      "its names are in the file",
                      source.family->family));
    }
  }
  list.order = ParamOrder::kNatural;
  std::sort(list.params.begin(), list.params.end(), InNaturalOrder);
  return OkStatus();
}

// The step names parameters by their places in the list that was read.
Status FollowStep(const std::vector<std::string>& names, ModelList& list) {
  if (list.step.uses.empty()) return OkStatus();
  std::unordered_map<std::string_view, ParamId> now;
  for (const ParamSpec& spec : list.params) {
    now.emplace(spec.name, ParamId(static_cast<int32_t>(now.size())));
  }
  for (ParamUse& use : list.step.uses) {
    for (std::vector<ParamId>* ids : {&use.hold, &use.grads}) {
      for (ParamId& id : *ids) {
        const std::string& name = names[id.index()];
        const auto found = now.find(name);
        if (found == now.end()) {
          return InvalidArgument(fmt::format(
              "the list's step uses {}, which --expert-layout takes away: "
              "leave the flag or the step's lines away",
              Quoted(name)));
        }
        id = found->second;
      }
    }
  }
  return OkStatus();
}

// The whole fits the numbers that everything after this counts with.
Status CheckTotal(const std::vector<ParamSpec>& params) {
  int64_t total = 0;
  for (const ParamSpec& spec : params) {
    const auto count = CountElements(spec.shape, spec.dtype);
    const Result<Bytes> bytes = TensorBytes(spec.shape, spec.dtype);
    if (!bytes.ok()) {
      return bytes.status().WithContext(
          fmt::format("tensor {}", Quoted(spec.name)));
    }
    if (count->count() > kMaxModelElements - total) {
      return Malformed(fmt::format(
          "tensor {} brings the model to more than {} elements; no such model "
          "can be held",
          Quoted(spec.name), kMaxModelElements));
    }
    total += count->count();
  }
  return OkStatus();
}

}  // namespace

Result<ModelList> ReadModel(const std::string& path,
                            const ReadModelOptions& options) {
  CASTOR_ASSIGN_OR_RETURN(ModelSource source, ReadModelSource(path, options));
  ModelList list = std::move(source.list);
  std::vector<std::string> names;  // as the list has them
  if (!list.step.uses.empty()) {
    for (const ParamSpec& spec : list.params) names.push_back(spec.name);
  }
  auto finish = [&]() -> Status {
    CASTOR_RETURN_IF_ERROR(CheckTotal(list.params));
    if (source.family) {
      DropAbsent(*source.family, list);
      list.tied = source.family->tied;
    }
    CASTOR_RETURN_IF_ERROR(ChooseExperts(options.expert_layout, list));
    if (options.order == ParamOrder::kTrace) {
      CASTOR_RETURN_IF_ERROR(OrderByTrace(options.trace_file, list));
    } else {
      CASTOR_RETURN_IF_ERROR(OrderParams(source, options.order, list));
    }
    CASTOR_RETURN_IF_ERROR(FollowStep(names, list));
    CASTOR_RETURN_IF_ERROR(FilterTrainable(options.freeze, options.only, list));
    if (!options.dtype) return CheckTotal(list.params);
    for (ParamSpec& spec : list.params) spec.dtype = *options.dtype;
    // Whoever chose the type can choose another.
    const Status status = CheckTotal(list.params);
    return status.ok() ? status
                       : InvalidArgument(std::string(status.message()));
  };
  if (Status status = finish(); !status.ok()) {
    return status.WithContext(path == "-" ? "standard input"
                                          : QuotedPath(path));
  }
  return list;
}

}  // namespace castor
