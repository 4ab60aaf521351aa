// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/answers/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "collectives/options/option_table.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/world/value_hash.h"
#include "offload/kernels/optimizer_options.h"

namespace castor {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kMostRanks = 1 << 20;

// A chunk's size is searched where nothing else says it.
bool IsSearched(const PlanFile& plan) {
  return !plan.engine.chunk_size && plan.files.layout.empty();
}

// What a plan calls otherwise than a config.
std::string PlanKey(const std::string& key) {
  if (key == "home_limits") return "limits";
  if (key == "home_rules") return "rules";
  return key == "chunk.align_elements" ? "align_elements" : key;
}

OptionTable PlanRows(ZeroOptions* options, EngineFiles* files) {
  return EngineOptions(options, files).For(kPlanKey | kPlanMust);
}

OptionTable TableOf(PlanFile* plan) {
  OptionTable table;
  table.Schema(kPlanSchema).Must();
  table.Text("model.name", &plan->model).Must();
  table.Whole("model.tensors", &plan->tensors, 0, kMost).Must();
  table.Whole("model.elements", &plan->elements, 0, kMost).Must();
  table.Text("model.packing", &plan->packing);
  table.Text("room_for.moments", &plan->moments);
  table.Switch("room_for.norm", &plan->norm);
  table.Switch("room_for.processes", &plan->processes);
  table.Whole("world", &plan->world, 1, kMostRanks).Must();
  const OptionTable rows = PlanRows(&plan->engine, &plan->files);
  for (Option row : rows.rows()) {
    if (row.key == "chunk.min_bytes" || row.key == "chunk.max_bytes") {
      row.get = [get = row.get, plan] {
        return IsSearched(*plan) ? get() : std::nullopt;
      };
    }
    row.key = PlanKey(row.key);
    row.required = (row.uses & kPlanMust) != 0;
    table.Add(std::move(row));
  }
  table.Size("nvme_bytes", &plan->nvme);
  return table;
}

Status CheckChunk(const PlanFile& plan, const std::vector<std::string>& said) {
  const auto says = [&](const char* key) {
    return std::count(said.begin(), said.end(), key) > 0;
  };
  const bool least = says("chunk.min_bytes");
  const bool most = says("chunk.max_bytes");
  const int ways = int{least || most} +
                   int{plan.engine.chunk_size.has_value()} +
                   int{!plan.files.layout.empty()};
  if (ways != 1) {
    return Malformed(fmt::format(
        "\"chunk\" says {}: give min_bytes and max_bytes, or bytes, or layout",
        ways == 0 ? "nothing of a size" : "more than one size"));
  }
  if (least != most) {
    return Malformed(fmt::format("\"chunk\" has no \"{}\"",
                                 least ? "max_bytes" : "min_bytes"));
  }
  if (!least || plan.engine.min_chunk <= plan.engine.max_chunk) {
    return OkStatus();
  }
  return Malformed(fmt::format(
      "\"chunk\" has a min_bytes of {} above its max_bytes of {}",
      plan.engine.min_chunk.count(), plan.engine.max_chunk.count()));
}

}  // namespace

std::string PackingDigest(std::span<const ParamSpec> params) {
  internal::ValueHash hash;
  for (const ParamSpec& spec : params) {
    hash.Add(CountElements(spec.shape, spec.dtype).value().count());
    hash.Add(static_cast<int64_t>(spec.dtype));
    hash.Add(int64_t{spec.trainable});
    if (!spec.whole && spec.states < 0) continue;
    hash.Add(int64_t{spec.whole});
    hash.Add(int64_t{spec.states});
  }
  return fmt::format("{:016x}", hash.value());
}

std::string MomentsText(const OptimizerOptions& optimizer) {
  return fmt::format("{} of {}", MomentsOf(optimizer),
                     DTypeName(optimizer.moment_dtype));
}

std::vector<std::string> PlanKeys() {
  PlanFile plan;
  const OptionTable table = PlanRows(&plan.engine, &plan.files);
  std::vector<std::string> keys;
  for (const Option& row : table.rows()) {
    if (row.key != "machine") keys.push_back(row.key);
  }
  return keys;
}

std::string WritePlan(const PlanFile& plan) {
  PlanFile own = plan;
  return WriteOptions(TableOf(&own)).Dump(2) + "\n";
}

Result<PlanFile> ParsePlan(std::string_view text) {
  if (text.size() > kMaxPlanBytes) {
    return Malformed(fmt::format("it has {} bytes, and a plan at most {}",
                                 text.size(), kMaxPlanBytes));
  }
  PlanFile plan;
  CASTOR_ASSIGN_OR_RETURN(const std::vector<std::string> said,
                          ReadOptions(text, TableOf(&plan)));
  CASTOR_RETURN_IF_ERROR(CheckChunk(plan, said));
  return plan;
}

Status CheckPlanFits(const PlanFile& plan, std::span<const ParamSpec> params,
                     int world, bool processes) {
  if (plan.world != world) {
    return InvalidArgument(
        fmt::format("the plan is for {} ranks, and there are {}: plan again "
                    "with castor plan --world {}",
                    plan.world, world, world));
  }
  Elements elements;
  for (const ParamSpec& spec : params) {
    CASTOR_ASSIGN_OR_RETURN(const Elements count,
                            CountElements(spec.shape, spec.dtype));
    elements += count;
  }
  const auto tensors = static_cast<int64_t>(params.size());
  if (plan.tensors != tensors || plan.elements != elements) {
    return InvalidArgument(fmt::format(
        "the plan is for {}, {} tensors of {} elements in all, and the model "
        "has {} of {}: plan again for this model",
        plan.model, plan.tensors, plan.elements.count(), tensors,
        elements.count()));
  }
  if (!plan.packing.empty() && plan.packing != PackingDigest(params)) {
    return InvalidArgument(fmt::format(
        "the plan is for {}, whose parameters are of another type, in another "
        "order, updated otherwise, or not all trained: plan again for the "
        "model as it is trained",
        plan.model));
  }
  // Without room_for, nobody knows.
  if (processes && world > 1 && !plan.moments.empty() && !plan.processes) {
    return InvalidArgument(
        "the plan is for ranks that are threads, and here each is a process, "
        "which exchanges in a part of its budget: plan again with castor plan "
        "--processes");
  }
  return OkStatus();
}

Status ReadFilesOfPlan(const std::string& folder, PlanFile* plan) {
  EngineFiles files = plan->files;
  for (std::string* file : {&files.layout, &files.machine}) {
    if (!file->empty()) {
      *file = (std::filesystem::path(folder) / *file).string();
    }
  }
  return ReadEngineFiles(files, &plan->engine);
}

Status ApplyPlan(const PlanFile& plan, ZeroOptions* options) {
  if (plan.nvme && options->nvme.empty()) {
    return InvalidArgument(
        fmt::format("the plan puts up to {} bytes on NVMe: name a directory "
                    "for them",
                    plan.nvme->count()));
  }
  if (!plan.nvme && !options->nvme.empty()) {
    return InvalidArgument(
        "the plan puts nothing on NVMe: leave the directory away, or plan "
        "again with castor plan --nvme");
  }
  const std::string moments = MomentsText(options->optimizer);
  if (!plan.moments.empty() && plan.moments != moments) {
    return InvalidArgument(
        fmt::format("the plan has room for moments of each parameter, {}, and "
                    "the optimizer keeps {}: plan again with castor plan "
                    "--optimizer and --moments",
                    plan.moments, moments));
  }
  if (!plan.moments.empty() && !plan.norm && CountsNorm(*options)) {
    return InvalidArgument(
        "the plan has no room for the gradient's norm, which clipping and loss "
        "scales need: plan again with castor plan --clip");
  }
  // As a document, which lists come through as they are, too.
  PlanFile own = plan;
  const JsonValue said = WriteOptions(PlanRows(&own.engine, &own.files));
  options->chunk_size.reset();
  options->home_limits.reset();
  options->home_rules.clear();
  const Result<std::vector<std::string>> set =
      ReadOptions(said.Dump(), PlanRows(options, &own.files));
  CASTOR_CHECK(set.ok());
  options->layout = plan.engine.layout;
  if (!options->machine) options->machine = plan.engine.machine;
  if (options->nvme.size() == 1 && !options->nvme[0].size) {
    options->nvme[0].size = plan.nvme;
  }
  return OkStatus();
}

}  // namespace castor
