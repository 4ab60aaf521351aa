// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/ckpt/ckpt_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/json_value.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/tensor_digest.h"
#include "placement/run_event.h"
#include "tools/cli/json_out.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/cli/text_table.h"

namespace castor {
namespace {

using Align = TextTable::Align;

Bytes BytesOfManifest(const CheckpointManifest& manifest) {
  return Bytes(static_cast<int64_t>(manifest.bytes()));
}

int64_t ElementsOf(const SavedParam& param) {
  const Result<Elements> elements = CountElements(param.shape, param.dtype);
  return elements.ok() ? elements->count() : 0;
}

std::string ShapeText(const SavedParam& param) {
  return fmt::format("[{}]", fmt::join(param.shape, ", "));
}

// What one state of all parameters takes.
struct StateTotal {
  int64_t tensors = 0;
  Bytes bytes;
  std::set<std::string> dtypes;
  std::set<int32_t> files;
};

std::string StatesText(const CheckpointManifest& manifest) {
  TextTable table({{"state", Align::kLeft},
                   {"tensors"},
                   {"type", Align::kLeft},
                   {"size"},
                   {"files", Align::kLeft}});
  for (int k = 0; k < kStateKinds; ++k) {
    StateTotal total;
    for (const SavedParam& param : manifest.params) {
      const SavedState* state = param.Find(static_cast<StateKind>(k));
      if (state == nullptr) continue;
      ++total.tensors;
      total.bytes += BytesOf(Elements(ElementsOf(param)), state->dtype);
      total.dtypes.emplace(DTypeName(state->dtype));
      total.files.insert(state->file);
    }
    if (total.tensors == 0) continue;
    const std::string first =
        Shown(manifest.files[static_cast<size_t>(*total.files.begin())].name);
    table.AddRow(
        {std::string(StateKindName(static_cast<StateKind>(k))),
         Grouped(total.tensors),
         fmt::format("{}", fmt::join(total.dtypes, ",")),
         FormatSize(total.bytes),
         total.files.size() == 1
             ? first
             : fmt::format("{} and {} more", first, total.files.size() - 1)});
  }
  return table.Render(Emphasis::kNone);
}

std::string TensorsText(const CheckpointManifest& manifest) {
  TextTable table({{"tensor", Align::kLeft},
                   {"type", Align::kLeft},
                   {"shape", Align::kLeft},
                   {"updates"},
                   {"digest", Align::kLeft}});
  for (const SavedParam& param : manifest.params) {
    for (const SavedState& state : param.states) {
      table.AddRow({Shown(TensorNameOf(param.name, state.state)),
                    std::string(DTypeName(state.dtype)), ShapeText(param),
                    Grouped(param.steps), DigestText(state.digest)});
    }
  }
  return table.Render(Emphasis::kNone);
}

JsonValue ManifestJson(const CheckpointManifest& manifest) {
  JsonValue files = JsonValue::Array();
  for (const SavedFile& file : manifest.files) {
    files.Append(JsonValue::Object({{"name", file.name},
                                    {"size_bytes", file.bytes},
                                    {"digest", DigestText(file.digest)}}));
  }
  JsonValue tensors = JsonValue::Array();
  for (const SavedParam& param : manifest.params) {
    for (const SavedState& state : param.states) {
      JsonValue shape = JsonValue::Array();
      for (const int64_t dim : param.shape) shape.Append(dim);
      tensors.Append(JsonValue::Object(
          {{"name", TensorNameOf(param.name, state.state)},
           {"parameter", param.name},
           {"state", StateKindName(state.state)},
           {"dtype", DTypeName(state.dtype)},
           {"shape", std::move(shape)},
           {"updates", param.steps},
           {"file", manifest.files[static_cast<size_t>(state.file)].name},
           {"digest", DigestText(state.digest)}}));
    }
  }
  JsonValue engine = JsonValue::Object();
  for (const auto& [name, value] : manifest.engine) engine[name] = value;
  return JsonValue::Object({{"world", manifest.world},
                            {"stage", manifest.stage},
                            {"optimizer", manifest.optimizer},
                            {"engine", std::move(engine)},
                            {"size_bytes", manifest.bytes()},
                            {"files", std::move(files)},
                            {"tensors", std::move(tensors)}});
}

}  // namespace

Result<std::vector<FoundCheckpoint>> CheckpointsOf(const CkptRequest& request) {
  CASTOR_ASSIGN_OR_RETURN(const std::string latest,
                          FindCheckpoint(request.directory, request.step));
  if (request.step.has_value()) {
    return std::vector<FoundCheckpoint>{{*request.step, latest}};
  }
  if (latest != request.directory) return ListCheckpoints(request.directory);
  // Of one that cannot be read, by its folder's name.
  const Result<CheckpointManifest> manifest = ReadManifest(latest);
  const std::filesystem::path folder(latest + "/");
  const int64_t step =
      manifest.ok()
          ? manifest->step
          : StepOfCheckpointName(folder.parent_path().filename().string())
                .value_or(0);
  return std::vector<FoundCheckpoint>{{step, latest}};
}

Status RunCkptList(const CkptRequest& request, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found,
                          CheckpointsOf(request));
  TextTable table({{"step"},
                   {"ranks"},
                   {"stage"},
                   {"optimizer", Align::kLeft},
                   {"parameters"},
                   {"tensors"},
                   {"files"},
                   {"size"}});
  JsonValue checkpoints = JsonValue::Array();
  Status problem;
  Result<CheckpointManifest> last = Status(Internal("none was read"));
  for (const FoundCheckpoint& each : found) {
    Result<CheckpointManifest> manifest = ReadManifest(each.path);
    JsonValue row =
        JsonValue::Object({{"step", each.step}, {"path", each.path}});
    if (!manifest.ok()) {
      problem = manifest.status();
      console.Note(problem.message());
      row["problem"] = problem.message();
      checkpoints.Append(std::move(row));
      continue;
    }
    int64_t elements = 0;
    size_t tensors = 0;
    for (const SavedParam& param : manifest->params) {
      elements += ElementsOf(param);
      tensors += param.states.size();
    }
    table.AddRow({Grouped(manifest->step), Grouped(manifest->world),
                  Grouped(manifest->stage), Shown(manifest->optimizer),
                  Grouped(elements), Grouped(static_cast<int64_t>(tensors)),
                  Grouped(static_cast<int64_t>(manifest->files.size())),
                  FormatSize(BytesOfManifest(*manifest))});
    const JsonValue facts = ManifestJson(*manifest);
    for (const std::string& key : facts.keys()) row[key] = facts[key];
    checkpoints.Append(std::move(row));
    last = std::move(manifest);
  }
  if (request.json) {
    WriteJson(JsonValue::Object({{"schema", "castor.ckpt.ls/1"},
                                 {"checkpoints", std::move(checkpoints)}}),
              console.out);
  } else {
    console.out << table.Render(Emphasis::kNone);
    if (last.ok()) {
      console.out << fmt::format("\nStep {} holds\n", last->step)
                  << StatesText(*last);
      if (request.tensors) console.out << '\n' << TensorsText(*last);
    }
  }
  return problem;
}

}  // namespace castor
