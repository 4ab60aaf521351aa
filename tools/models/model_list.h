// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_MODEL_LIST_H_
#define CASTOR_TOOLS_MODELS_MODEL_LIST_H_

// What is known of a model before anyone trains it: its parameters by name,
// shape and type, in the order in which they will be packed. Values.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/param_spec.h"
#include "placement/derive/step_model.h"

namespace castor {

// In which order parameters are packed.
enum class ParamOrder : uint8_t {
  kFamily,   // the registration order of the family's reference code
  kFile,     // as the file lists them, or lays out their bytes
  kNatural,  // by name, with numbers as numbers: layers.2 before layers.10
  kTrace,    // as a recorded step first used them
};

std::string_view ParamOrderName(ParamOrder order);

// Names in the order a person expects: runs of digits compare as numbers of any
// length, everything else byte by byte. A strict total order on distinct
// strings, so sorting by it has one result.
bool NaturalLess(std::string_view a, std::string_view b);

// How the experts of a mixture-of-experts layer are held: files on the hub have
// a tensor per expert and matrix, trainers since Transformers v5 one for all
// experts. The best chunk sizes of the two differ.
enum class ExpertLayout : uint8_t { kFused, kPerExpert };

// "fused", "per-expert": as --expert-layout names them.
std::string_view ExpertLayoutName(ExpertLayout layout);

struct ReadModelOptions {
  // Default: of a list the file's, else the family's, else natural.
  std::optional<ParamOrder> order = {};
  std::string trace_file = {};      // with ParamOrder::kTrace
  std::optional<DType> dtype = {};  // in place of every parameter's own
  std::optional<ExpertLayout> expert_layout = {};  // default: as in the file
  // A path or name of a Python whose Transformers library is asked for families
  // that Castor does not know; empty: none is.
  std::string python = {};
  // Patterns on names (param_filter.h): what matches `freeze` is not trained,
  // and where `only` is given, nothing else than what matches it is.
  std::vector<std::string> freeze = {};
  std::vector<std::string> only = {};
};

// A tensor of a file that no trainer packs, or a name that a file gives to
// another tensor as well.
struct DroppedTensor {
  std::string name;
  std::string reason;
};

// A name that shares the parameter called `to`.
struct TiedName {
  std::string name;
  std::string to;
};

struct ModelList {
  std::string name;
  std::string family;  // "gpt2", of a config.json; empty where none tells
  // Who told the family's parameters: "transformers 5.24.0"; empty where Castor
  // derives them itself, or there is no family.
  std::string library;
  std::string source;  // what was read, for people
  ParamOrder order = ParamOrder::kNatural;
  std::vector<ParamSpec> params;
  std::vector<DroppedTensor> dropped;
  std::vector<TiedName> tied;  // where the model's family tells
  // By number in `params`, where the list says it; else without uses.
  DeclaredStep step;
  std::vector<std::string> notes;  // what a person should know, a sentence each
};

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_MODEL_LIST_H_
