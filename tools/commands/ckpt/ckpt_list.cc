// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "chunk/text/json_value.h"
#include "collectives/checkpoint/checkpoint_manifest.h"
#include "collectives/checkpoint/checkpoint_reader.h"
#include "collectives/checkpoint/files/tensor_digest.h"
#include "placement/run_event.h"
#include "tools/commands/ckpt/ckpt.h"

namespace castor {
namespace {

using Align = Table::Align;

int64_t ElementsOf(const SavedParam& param) {
  const Result<Elements> elements = CountElements(param.shape, param.dtype);
  return elements.ok() ? elements->count() : 0;
}

Value NameOfFile(const CheckpointManifest& manifest, int32_t file) {
  return Value::Name(manifest.files[static_cast<size_t>(file)].name);
}

// What each state of all parameters takes.
Table StatesTable(const CheckpointManifest& manifest) {
  Table table({}, {{"", "state", Align::kLeft},
                   {"", "tensors", Align::kRight},
                   {"", "type", Align::kLeft},
                   {"", "size", Align::kRight},
                   {"", "files", Align::kLeft}});
  for (const std::string& name : StatesIn(manifest)) {
    int64_t tensors = 0;
    Bytes bytes;
    std::set<std::string> dtypes;
    std::set<int32_t> files;
    for (const SavedParam& param : manifest.params) {
      const SavedState* state = param.Find(name);
      if (state == nullptr) continue;
      ++tensors;
      bytes += BytesOf(Elements(ElementsOf(param)), state->dtype);
      dtypes.emplace(DTypeName(state->dtype));
      files.insert(state->file);
    }
    if (tensors == 0) continue;
    std::string in = NameOfFile(manifest, *files.begin()).Page();
    if (files.size() > 1) in += fmt::format(" and {} more", files.size() - 1);
    table.Add(
        {name, tensors, fmt::format("{}", fmt::join(dtypes, ",")), bytes, in});
  }
  return table;
}

Table TensorsTable(const CheckpointManifest& manifest) {
  Table table({.key = "tensors"}, {{"name", "tensor", Align::kLeft},
                                   {"parameter"},
                                   {"state"},
                                   {"dtype", "type", Align::kLeft},
                                   {"shape"},
                                   {"", "shape", Align::kLeft},
                                   {"updates", "updates", Align::kRight},
                                   {"file"},
                                   {"digest", "digest", Align::kLeft}});
  for (const SavedParam& param : manifest.params) {
    for (const SavedState& state : param.states) {
      table.Add({Value::Name(TensorNameOf(param.name, state.state)), param.name,
                 state.state, DTypeName(state.dtype), ListOf(param.shape),
                 fmt::format("[{}]", fmt::join(param.shape, ", ")), param.steps,
                 NameOfFile(manifest, state.file), DigestText(state.digest)});
    }
  }
  return table;
}

JsonValue ManifestJson(const FoundCheckpoint& found,
                       const CheckpointManifest& manifest) {
  JsonValue engine = JsonValue::Object();
  for (const auto& [name, value] : manifest.engine) engine[name] = value;
  return Fields({{"step", found.step},
                 {"path", found.path},
                 {"world", manifest.world},
                 {"stage", manifest.stage},
                 {"optimizer", manifest.optimizer},
                 {"engine", engine},
                 {"size_bytes", manifest.bytes()},
                 {"files", ListOf(manifest.files,
                                  [](const SavedFile& file) {
                                    return Fields(
                                        {{"name", file.name},
                                         {"size_bytes", file.bytes},
                                         {"digest", DigestText(file.digest)}});
                                  })},
                 {"tensors", TensorsTable(manifest).Json()}});
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
  Table table({}, {{"", "step", Align::kRight},
                   {"", "ranks", Align::kRight},
                   {"", "stage", Align::kRight},
                   {"", "optimizer", Align::kLeft},
                   {"", "parameters", Align::kRight},
                   {"", "tensors", Align::kRight},
                   {"", "files", Align::kRight},
                   {"", "size", Align::kRight}});
  JsonValue checkpoints = JsonValue::Array();
  Status problem;
  Result<CheckpointManifest> last = Status(Internal("none was read"));
  for (const FoundCheckpoint& each : found) {
    Result<CheckpointManifest> manifest = ReadManifest(each.path);
    if (!manifest.ok()) {
      problem = manifest.status();
      console.Note(problem.message());
      checkpoints.Append(Fields({{"step", each.step},
                                 {"path", each.path},
                                 {"problem", problem.message()}}));
      continue;
    }
    int64_t elements = 0;
    size_t tensors = 0;
    for (const SavedParam& param : manifest->params) {
      elements += ElementsOf(param);
      tensors += param.states.size();
    }
    table.Add({manifest->step, manifest->world, manifest->stage,
               Value::Name(manifest->optimizer), elements, tensors,
               manifest->files.size(),
               Bytes(static_cast<int64_t>(manifest->bytes()))});
    checkpoints.Append(ManifestJson(each, *manifest));
    last = std::move(manifest);
  }
  Document document("castor.ckpt.ls/1");
  document.Set("checkpoints", std::move(checkpoints));
  document.Add(std::move(table));
  if (last.ok()) {
    document.Text(fmt::format("Step {} holds\n", last->step));
    document.Add(StatesTable(*last));
    if (request.tensors) document.Add(TensorsTable(*last), Form::kPage);
  }
  Print(document, request.form, console);
  return problem;
}

}  // namespace castor
