// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/checkpoint/checkpoint_plan.h"

#include <fmt/format.h>

#include <cstddef>
#include <string_view>

#include "collectives/checkpoint/checkpoint_manifest.h"

namespace castor {
namespace {

std::string StemOf(std::string_view state) {
  if (state == kParamName) return kModelStem;
  return fmt::format("{}/{}", kOptimizerFolder, state);
}

// What an index says lies beside it.
std::string NameOf(const std::string& stem) {
  const size_t slash = stem.rfind('/');
  return slash == stem.npos ? stem : stem.substr(slash + 1);
}

}  // namespace

Result<CheckpointPlan> PlanCheckpoint(std::span<const ParamWithStates> params,
                                      const StateNames& names, Bytes max_file) {
  CheckpointPlan plan;
  plan.places.resize(params.size());
  for (size_t k = 0; k < kStateKinds; ++k) {
    const StateKind kind = static_cast<StateKind>(k);
    std::vector<ParamSpec> tensors;
    std::vector<size_t> owners;  // the parameter of each
    for (size_t p = 0; p < params.size(); ++p) {
      for (const ParamWithStates::State& state : params[p].states) {
        if (state.state != kind) continue;
        tensors.push_back({TensorNameOf(params[p].spec.name, names.of(kind)),
                           params[p].spec.shape, state.dtype,
                           params[p].spec.trainable});
        owners.push_back(p);
      }
    }
    const std::string stem = StemOf(names.of(kind));
    const std::string name = NameOf(stem);
    const std::string folder = stem.substr(0, stem.size() - name.size());
    CASTOR_ASSIGN_OR_RETURN(TensorFiles files,
                            PlanTensorFiles(name, tensors, max_file));
    const size_t before = plan.files.size();
    for (size_t t = 0; t < tensors.size(); ++t) {
      TensorPlace place = files.places[t];
      place.file += before;
      plan.places[owners[t]][k] = place;
    }
    for (TensorFile& file : files.files) {
      file.name = folder + file.name;
      for (size_t& tensor : file.tensors) tensor = owners[tensor];
      plan.files.push_back(std::move(file));
    }
    if (!files.index.empty()) {
      plan.indexes.emplace_back(folder + files.index_name, files.index);
    }
  }
  return plan;
}

}  // namespace castor
