// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/load_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/quote.h"

namespace castor {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

bool IsMoment(StateKind kind) {
  return kind != StateKind::kParam && kind != StateKind::kMaster;
}

// Of `names`, as words.
std::string Nearest(std::string_view name, std::span<const std::string> names) {
  const std::optional<std::string> nearest = NearestName(name, names);
  return nearest ? fmt::format(", the nearest of them {}", Quoted(*nearest))
                 : "";
}

Status CheckSameTensor(const SavedParam& saved, const ParamSpec& spec,
                       const LoadOptions& options) {
  if (saved.shape != spec.shape) {
    return InvalidArgument(fmt::format(
        "parameter {} has shape [{}] in the checkpoint and [{}] in the "
        "model; load one of this model",
        Quoted(spec.name), fmt::join(saved.shape, ", "),
        fmt::join(spec.shape, ", ")));
  }
  if (saved.dtype != spec.dtype && !options.convert) {
    return InvalidArgument(fmt::format(
        "parameter {} is {} in the checkpoint and {} in the "
        "model; load it with convert = true",
        Quoted(spec.name), DTypeName(saved.dtype), DTypeName(spec.dtype)));
  }
  return OkStatus();
}

Result<const SavedState*> SourceOf(const SavedParam& saved,
                                   const StateNames& names, StateKind kind,
                                   DType dtype, const LoadOptions& options) {
  const SavedState* state = saved.Find(names.of(kind));
  const SavedState* master = saved.Find(kMasterName);
  if (kind == StateKind::kParam && state->dtype != dtype && master != nullptr) {
    state = master;  // as exact as there is
  }
  if (kind == StateKind::kMaster && state == nullptr &&
      (options.convert || options.begin_missing || !options.optimizer_states)) {
    state = saved.Find(kParamName);
  }
  if (state == nullptr) {
    return InvalidArgument(fmt::format(
        "parameter {} has no {} in the checkpoint{}; load weights only "
        "(optimizer_states = false)",
        Quoted(saved.name), names.of(kind),
        saved.trainable ? "" : ", where it was frozen"));
  }
  if (state->dtype == dtype) return state;
  if (!options.convert && IsMoment(kind)) {
    return InvalidArgument(
        fmt::format("{} of parameter {} is {} in the checkpoint and {} in "
                    "the engine; load it with convert = true",
                    names.of(kind), Quoted(saved.name), DTypeName(state->dtype),
                    DTypeName(dtype)));
  }
  if (!IsFloat(state->dtype)) {
    return InvalidArgument(fmt::format(
        "parameter {} is {} in the checkpoint, which nothing here is made "
        "from; convert it to F32 first (castor ckpt convert)",
        Quoted(saved.name), DTypeName(state->dtype)));
  }
  return state;
}

// Of manifest parameter `index`.
Result<std::array<StateSource, kStateKinds>> SourcesOf(
    const CheckpointManifest& manifest, size_t index,
    const ParamWithStates& param, const StateNames& names,
    const LoadOptions& options) {
  const SavedParam& saved = manifest.params[index];
  std::array<StateSource, kStateKinds> sources = {};
  CASTOR_RETURN_IF_ERROR(CheckSameTensor(saved, param.spec, options));
  // Its states would be lost, and its training end, without a word.
  if (options.optimizer_states && saved.trainable && !param.spec.trainable) {
    return InvalidArgument(fmt::format(
        "parameter {} was trained when the checkpoint was saved, and is frozen "
        "now; train it, or load weights only (optimizer_states = false)",
        Quoted(saved.name)));
  }
  // There is nothing to read of an empty one.
  if (std::ranges::find(saved.shape, 0) != saved.shape.end()) return sources;
  for (const ParamWithStates::State& state : param.states) {
    if (IsMoment(state.state) &&
        (!options.optimizer_states ||
         (options.begin_missing &&
          saved.Find(names.of(state.state)) == nullptr))) {
      continue;
    }
    StateSource& source = sources[static_cast<size_t>(state.state)];
    CASTOR_ASSIGN_OR_RETURN(source.state, SourceOf(saved, names, state.state,
                                                   state.dtype, options));
    source.param = index;
  }
  return sources;
}

}  // namespace

Result<LoadSources> FindLoadSources(const CheckpointManifest& manifest,
                                    std::span<const ParamWithStates> params,
                                    const StateNames& names,
                                    const LoadOptions& options) {
  LoadSources found;
  std::unordered_map<std::string_view, size_t> saved;
  for (size_t p = 0; p < manifest.params.size(); ++p) {
    saved.emplace(manifest.params[p].name, p);
  }
  std::unordered_multimap<std::string_view, std::string_view> further;
  for (const auto& [name, param] : options.aliases) {
    further.emplace(param, name);
  }
  for (const ParamWithStates& param : params) {
    auto at = saved.find(param.spec.name);
    const auto [begin, end] = further.equal_range(param.spec.name);
    for (auto alias = begin; alias != end && at == saved.end(); ++alias) {
      at = saved.find(alias->second);
    }
    if (at == saved.end()) {
      std::vector<std::string> there;
      for (const auto& [name, index] : saved) there.emplace_back(name);
      std::sort(there.begin(), there.end());
      return InvalidArgument(fmt::format(
          "parameter {} is not in the checkpoint, which has {}{}; load one "
          "of this model",
          Quoted(param.spec.name), manifest.params.size(),
          Nearest(param.spec.name, there)));
    }
    CASTOR_ASSIGN_OR_RETURN(
        found.states.emplace_back(),
        SourcesOf(manifest, at->second, param, names, options));
    found.params.push_back(at->second);
    saved.erase(at);
    for (auto alias = begin; alias != end; ++alias) saved.erase(alias->second);
  }
  for (const std::string& other : options.others) saved.erase(other);
  if (saved.empty()) return found;
  // The same one every time.
  const auto first = std::min_element(
      saved.begin(), saved.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<std::string> here;
  for (const ParamWithStates& param : params) here.push_back(param.spec.name);
  return InvalidArgument(fmt::format(
      "the checkpoint's parameter {} is not one of the model's "
      "{}{}, or two of them have its name; load a checkpoint of "
      "this model",
      Quoted(first->first), params.size(), Nearest(first->first, here)));
}

}  // namespace castor
