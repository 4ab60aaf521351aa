// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/checkpoint/files/tensor_digest.h"

namespace castor {
namespace {

// A line for each element of `list`, with commas between them.
template <typename List, typename Line>
std::string Section(std::string_view name, const List& list, const Line& line) {
  std::string text = fmt::format("\"{}\": [\n", name);
  for (size_t i = 0; i < list.size(); ++i) {
    text += line(list[i]);
    text += i + 1 < list.size() ? ",\n" : "\n";
  }
  return text + "]";
}

std::string FileLine(const SavedFile& file) {
  return fmt::format(R"({{"name": {}, "bytes": {}, "digest": "{}"}})",
                     JsonText(file.name), file.bytes, DigestText(file.digest));
}

std::string StateText(const SavedState& state) {
  return fmt::format(
      R"({{"state": "{}", "dtype": "{}", "file": {}, "digest": "{}"}})",
      state.state, DTypeName(state.dtype), state.file,
      DigestText(state.digest));
}

std::string ParamLine(const SavedParam& param) {
  std::vector<std::string> states;
  for (const SavedState& state : param.states) {
    states.push_back(StateText(state));
  }
  return fmt::format(
      R"({{"name": {}, "dtype": "{}", "shape": [{}], "trainable": {}, )"
      R"("steps": {}, "states": [{}]}})",
      JsonText(param.name), DTypeName(param.dtype),
      fmt::join(param.shape, ", "), param.trainable, param.steps,
      fmt::join(states, ", "));
}

}  // namespace

const SavedState* SavedParam::Find(std::string_view state) const {
  for (const SavedState& each : states) {
    if (each.state == state) return &each;
  }
  return nullptr;
}

uint64_t CheckpointManifest::bytes() const {
  uint64_t sum = 0;
  for (const SavedFile& file : files) sum += file.bytes;
  return sum;
}

std::string TensorNameOf(std::string_view param, std::string_view state) {
  if (state == kParamName) return std::string(param);
  return fmt::format("{}.{}", param, state);
}

std::vector<std::string> StatesIn(const CheckpointManifest& manifest) {
  std::vector<std::string> states;
  for (const SavedParam& param : manifest.params) {
    for (const SavedState& state : param.states) {
      if (std::ranges::find(states, state.state) == states.end()) {
        states.push_back(state.state);
      }
    }
  }
  return states;
}

std::string WriteManifest(const CheckpointManifest& manifest) {
  JsonValue engine = JsonValue::Object();
  for (const auto& [name, value] : manifest.engine) engine[name] = value;
  const std::string text = fmt::format(
      "{{\n\"schema\": \"{}\",\n\"step\": {},\n\"world\": {},\n\"stage\": {},\n"
      "\"optimizer\": {},\n\"engine\": {},\n{},\n{}",
      kCheckpointSchema, manifest.step, manifest.world, manifest.stage,
      JsonText(manifest.optimizer), engine.Dump(),
      Section("files", manifest.files, FileLine),
      Section("parameters", manifest.params, ParamLine));
  return text + ManifestEnd(text);
}

std::string ManifestEnd(std::string_view text) {
  return fmt::format(",\n\"digest\": \"{}\"\n}}\n",
                     DigestText(DigestOfFile(text, {})));
}

}  // namespace castor
