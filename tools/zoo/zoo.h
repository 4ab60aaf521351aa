// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_ZOO_ZOO_H_
#define CASTOR_TOOLS_ZOO_ZOO_H_

// Public models by their configs, the chunk-size search on them without a file
// or a network, and next to it what ColossalAI's rule picks and wastes: is the
// search as good as it says, and on which models is it not? Pure functions,
// thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "chunk/rules/gemini_rule.h"
#include "chunk/search/search_result.h"
#include "collectives/answers/search_words.h"
#include "tools/models/model_list.h"

namespace castor {

struct ZooModel {
  std::string_view name;    // for people
  std::string_view source;  // on the hub, where config and total are from
  // Of its config.json, the keys that decide its parameters.
  std::string_view config;
  // As the hub's safetensors metadata or the model card has it; a head that is
  // tied and in the file a second time counts once.
  int64_t published_parameters = 0;
  // Published in billions only: what the name says.
  bool rounded = false;
  bool has_experts = false;
};

// Dense models by family and size, then those with experts.
std::span<const ZooModel> ZooModels();

// Above it, a row says that its model has no better size.
inline constexpr double kZooWasteGoal = 0.003;

struct ZooRow {
  std::string name;
  std::string source;
  // How the experts are held, where the model has any.
  std::optional<ExpertLayout> experts;
  int64_t tensors = 0;
  Elements parameters;
  SearchOptions search;  // what the question asks of this model
  // The best of each mode asked for, with its proof.
  std::vector<ModeResult> modes;
  // The least waste among choices whose chunks are within the search's largest;
  // parameters that are larger by themselves have chunks of their own size.
  ChunkSizeCandidate best;
  // ColossalAI's rule, with the truth by its own packer.
  RuleResult gemini;
};

// The model's parameters in BF16 and in the order in which the reference code
// registers them. Internal where the zoo's own data is broken.
Result<std::vector<ParamSpec>> ZooParams(
    const ZooModel& model, ExpertLayout experts = ExpertLayout::kFused);

// InvalidArgument where the question is not valid, or makes sense for one model
// only (a device budget).
Result<ZooRow> SearchZooModel(const ZooModel& model, ExpertLayout experts,
                              const SearchQuestion& question);

// Every model in the order of ZooModels(); those with experts twice, as files
// hold them (one tensor for each) and fused as the reference code does.
Result<std::vector<ZooRow>> SearchZoo(const SearchQuestion& question);

}  // namespace castor

#endif  // CASTOR_TOOLS_ZOO_ZOO_H_
