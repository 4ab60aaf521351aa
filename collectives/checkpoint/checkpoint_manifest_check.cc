// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_manifest_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/layout/tensor_fields.h"
#include "chunk/text/quote.h"
#include "placement/state_kind.h"

namespace castor::internal {
namespace {

// Of the whole checkpoint, each once: what the optimizer keeps.
Status AddOptimizerState(const std::string& name,
                         std::vector<std::string>* states) {
  if (name == kParamName || name == kMasterName) return OkStatus();
  if (std::ranges::find(*states, name) != states->end()) return OkStatus();
  states->push_back(name);
  if (states->size() <= kMaxOptimizerStates) return OkStatus();
  return Malformed(
      fmt::format("its states are more than the {} that an optimizer may keep: "
                  "{}",
                  kMaxOptimizerStates, fmt::join(*states, ", ")));
}

// `left`: bytes of each file that no tensor has yet.
Status CheckParam(const CheckpointManifest& manifest, const SavedParam& param,
                  std::vector<std::string>* optimizer_states,
                  std::vector<uint64_t>* left) {
  const auto bad = [&](const std::string& why) {
    return Malformed(fmt::format("parameter {} {}", Quoted(param.name), why));
  };
  for (const SavedState& state : param.states) {
    if (param.Find(state.state) != &state) {
      return bad(fmt::format("has two states called {}", state.state));
    }
    CASTOR_RETURN_IF_ERROR(AddOptimizerState(state.state, optimizer_states));
    if (static_cast<size_t>(state.file) >= manifest.files.size()) {
      return bad(fmt::format("is in file {} of {}", state.file,
                             manifest.files.size()));
    }
    if (DTypeBits(state.dtype) % 8 != 0) {
      return bad(fmt::format("has elements of {}, which are no whole bytes",
                             DTypeName(state.dtype)));
    }
    const Result<Bytes> bytes = TensorBytes(param.shape, state.dtype);
    if (!bytes.ok()) return bad(std::string(bytes.status().message()));
    uint64_t& room = (*left)[static_cast<size_t>(state.file)];
    const uint64_t size = static_cast<uint64_t>(bytes->count());
    if (size > room) {
      return bad(fmt::format(
          "has more bytes than its file {} can hold",
          Quoted(manifest.files[static_cast<size_t>(state.file)].name)));
    }
    room -= size;
  }
  const SavedState* weights = param.Find(kParamName);
  if (weights == nullptr) return bad("has no weights");
  if (weights->dtype != param.dtype) {
    return bad(fmt::format("is of {} and its weights of {}",
                           DTypeName(param.dtype), DTypeName(weights->dtype)));
  }
  return OkStatus();
}

}  // namespace

Status CheckManifest(const CheckpointManifest& manifest) {
  std::unordered_set<std::string_view> names;
  std::vector<uint64_t> left;
  uint64_t total = 0;
  for (const SavedFile& file : manifest.files) {
    left.push_back(file.bytes);
    total += file.bytes;  // each is at most a quarter of what this holds
    if (total > static_cast<uint64_t>(kMostBytes)) {
      return Malformed("the files have more bytes than can be counted");
    }
    if (!names.insert(file.name).second) {
      return Malformed(
          fmt::format("the file {} is listed twice", Quoted(file.name)));
    }
  }
  names.clear();
  std::vector<std::string> states;
  for (const SavedParam& param : manifest.params) {
    if (!names.insert(param.name).second) {
      return Malformed(
          fmt::format("the parameter {} is listed twice", Quoted(param.name)));
    }
    CASTOR_RETURN_IF_ERROR(CheckParam(manifest, param, &states, &left));
  }
  return OkStatus();
}

}  // namespace castor::internal
