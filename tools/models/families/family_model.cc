// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/family_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/layout/tensor_fields.h"
#include "chunk/text/quote.h"
#include "tools/models/families/family_table.h"

namespace castor {
namespace {

// All tensors that are derived from a config; DeepSeek-V3 has 45,337.
constexpr int64_t kMaxTensors = 1'000'000;

// "KEY|ALIAS=DEFAULT[LEAST:MOST]?NULL", as family_table.h has it.
struct KeyWord {
  std::string key;
  std::string alias;  // the key where there is none
  std::string fallback;
  std::string least = "1";
  std::string most;                    // empty: no more than the config's
  std::optional<std::string> if_null;  // nothing: may not be null

  explicit KeyWord(std::string_view word) {
    const size_t equal = word.find('=');
    std::string_view name = word.substr(0, equal);
    std::string_view rest = word.substr(equal + 1);
    key = name.substr(0, name.find('|'));
    alias = name.substr(name.rfind('|') + 1);
    if (const size_t mark = rest.rfind('?'); mark != rest.npos) {
      if_null = rest.substr(mark + 1);
      rest = rest.substr(0, mark);
    }
    if (const size_t open = rest.find('['); open != rest.npos) {
      const size_t colon = rest.find(':', open);
      if (colon > open + 1) least = rest.substr(open + 1, colon - open - 1);
      most = rest.substr(colon + 1, rest.size() - colon - 2);
      rest = rest.substr(0, open);
    }
    fallback = rest;
  }
};

// Does what the lines of a family say, for one config.
class FamilyBuilder {
 public:
  FamilyBuilder(const ConfigValues& config, DType dtype, bool fused,
                std::string architecture)
      : config_(config),
        dtype_(dtype),
        architecture_(std::move(architecture)),
        sizes_({{"fused", fused ? 1 : 0}}) {}

  Result<FamilyModel> Build(const FamilyLine& family) {
    CASTOR_RETURN_IF_ERROR(Run(family.below));
    return std::move(model_);
  }

 private:
  using Words = std::span<const std::string>;

  Result<int64_t> Size(std::string_view expression) const {
    return EvaluateFamily(expression, [this](std::string_view name,
                                             std::optional<int64_t> element) {
      return ValueOf(std::string(name), element);
    });
  }

  int64_t ValueOf(const std::string& name,
                  std::optional<int64_t> element) const {
    if (element) {
      const std::vector<int64_t>& list = lists_.at(name);
      return std::count(list.begin(), list.end(), *element) > 0 ? 1 : 0;
    }
    // An architecture.
    if (name[0] >= 'A' && name[0] <= 'Z') return name == architecture_ ? 1 : 0;
    const auto found = sizes_.find(name);
    CASTOR_CHECK(found != sizes_.end());
    return found->second;
  }

  Result<std::vector<int64_t>> Sizes(Words expressions) const {
    std::vector<int64_t> sizes;
    for (const std::string& each : expressions) {
      CASTOR_ASSIGN_OR_RETURN(sizes.emplace_back(), Size(each));
    }
    return sizes;
  }

  // `name` with the value of each {EXPRESSION}.
  Result<std::string> Filled(std::string_view name) const {
    std::string filled;
    for (size_t open; (open = name.find('{')) != name.npos;) {
      const size_t close = name.find('}', open);
      CASTOR_ASSIGN_OR_RETURN(const int64_t value,
                              Size(name.substr(open + 1, close - open - 1)));
      filled += fmt::format("{}{}", name.substr(0, open), value);
      name.remove_prefix(close + 1);
    }
    return filled + std::string(name);
  }

  Status Run(const std::vector<FamilyLine>& lines) {
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string& verb = lines[i].words[0];
      const Words rest = Words(lines[i].words).subspan(1);
      if (verb != "if") {
        CASTOR_RETURN_IF_ERROR(RunLine(verb, rest, lines[i].below));
        continue;
      }
      CASTOR_ASSIGN_OR_RETURN(const int64_t holds, Size(rest[0]));
      const bool has_else =
          i + 1 < lines.size() && lines[i + 1].words[0] == "else";
      if (holds != 0) CASTOR_RETURN_IF_ERROR(Run(lines[i].below));
      if (has_else && holds == 0) {
        CASTOR_RETURN_IF_ERROR(Run(lines[i + 1].below));
      }
      if (has_else) ++i;
    }
    return OkStatus();
  }

  Status RunLine(const std::string& verb, Words rest,
                 const std::vector<FamilyLine>& below) {
    if (verb == "bare") return OkStatus();
    if (verb == "prefix") return model_.base_prefix = rest[0], OkStatus();
    if (verb == "layer") return layer_ = rest[0], OkStatus();
    if (verb == "use") {
      return Run(
          FindFamilyLine("part", rest[0] == "layer" ? layer_ : rest[0])->below);
    }
    if (verb == "in") return RunWithin(rest[0], below);
    if (verb == "each") return RunEach(rest, below);
    if (verb == "int" || verb == "bool" || verb == "let" || verb == "list" ||
        verb == "gated") {
      for (const std::string& word : rest) {
        CASTOR_RETURN_IF_ERROR(Define(verb, word));
      }
      return OkStatus();
    }
    if (verb == "multiple") return CheckMultiple(rest[0], rest[1]);
    if (verb == "bound_experts") return BoundExperts(rest[0], rest[1]);
    if (verb == "spelling") {
      model_.spellings.push_back({rest[0], rest[1]});
      return OkStatus();
    }
    if (verb == "tied") {
      model_.tied.push_back({rest[0], rest[1]});
      return OkStatus();
    }
    if (verb == "ignored") {
      CASTOR_ASSIGN_OR_RETURN(model_.ignored_prefixes.emplace_back(),
                              Filled(rest[0]));
      return OkStatus();
    }
    return AddParams(verb, rest);
  }

  Status RunWithin(std::string_view prefix,
                   const std::vector<FamilyLine>& below) {
    CASTOR_ASSIGN_OR_RETURN(const std::string filled, Filled(prefix));
    const size_t around = prefix_.size();
    prefix_ += filled;
    const Status status = Run(below);
    prefix_.resize(around);
    return status;
  }

  Status RunEach(Words words, const std::vector<FamilyLine>& below) {
    CASTOR_ASSIGN_OR_RETURN(const int64_t count, Size(words[1]));
    for (int64_t i = 0; i < count; ++i) {
      sizes_[words[0]] = i;
      CASTOR_RETURN_IF_ERROR(
          RunWithin(words.size() > 2 ? words[2] : std::string(), below));
    }
    return OkStatus();
  }

  Status Define(const std::string& verb, const std::string& word) {
    if (verb == "list") {
      CASTOR_ASSIGN_OR_RETURN(lists_[word], config_.IntList(word));
      return OkStatus();
    }
    if (verb == "gated") {
      CASTOR_ASSIGN_OR_RETURN(const bool gated, ReadGate(word));
      sizes_[word] = gated ? 1 : 0;
      return OkStatus();
    }
    if (verb == "let") {
      const size_t equal = word.find('=');
      CASTOR_ASSIGN_OR_RETURN(const int64_t value,
                              Size(word.substr(equal + 1)));
      sizes_[word.substr(0, equal)] = value;
      return OkStatus();
    }
    const KeyWord asked(word);
    CASTOR_ASSIGN_OR_RETURN(const int64_t fallback, Size(asked.fallback));
    if (verb == "bool") {
      CASTOR_ASSIGN_OR_RETURN(const bool value,
                              asked.if_null
                                  ? config_.BoolOrNull(asked.key, fallback != 0)
                                  : config_.Bool(asked.key, fallback != 0));
      sizes_[asked.key] = value ? 1 : 0;
      return OkStatus();
    }
    return ReadSize(asked, fallback);
  }

  Status ReadSize(const KeyWord& asked, int64_t fallback) {
    CASTOR_ASSIGN_OR_RETURN(const int64_t least, Size(asked.least));
    int64_t if_null = 0;
    if (asked.if_null) {
      CASTOR_ASSIGN_OR_RETURN(if_null, Size(*asked.if_null));
    }
    CASTOR_ASSIGN_OR_RETURN(
        const int64_t value,
        asked.if_null&& config_.IsNull(asked.key)
            ? if_null
            : config_.IntAlias(asked.key, asked.alias, fallback, least));
    if (!asked.most.empty()) {
      CASTOR_ASSIGN_OR_RETURN(const int64_t most, Size(asked.most));
      if (value > most) {
        return Malformed(fmt::format("{} is {}; more than {} is refused",
                                     asked.key, value, most));
      }
    }
    sizes_[asked.key] = value;
    return OkStatus();
  }

  // "relu" and "gated-gelu", say: whether the MLP has a gate.
  Result<bool> ReadGate(const std::string& key) const {
    CASTOR_ASSIGN_OR_RETURN(const std::string kind, config_.String(key, ""));
    const size_t dash = kind.find('-');
    if (dash == kind.npos) return false;
    if (kind.substr(0, dash) != "gated" ||
        kind.find('-', dash + 1) != kind.npos) {
      return Malformed(fmt::format(
          "{} is {} where an activation's name belongs, with or without gated- "
          "before it",
          Quoted(key), Quoted(kind)));
    }
    return true;
  }

  Status CheckMultiple(const std::string& of, const std::string& by) const {
    if (sizes_.at(of) % sizes_.at(by) == 0) return OkStatus();
    return Malformed(fmt::format(
        "{} {} is not a multiple of {} {}: no such attention exists", of,
        sizes_.at(of), by, sizes_.at(by)));
  }

  // Three matrices each, whichever their layout.
  Status BoundExperts(const std::string& key, const std::string& layers) const {
    if (3 * sizes_.at(key) * sizes_.at(layers) <= kMaxTensors) {
      return OkStatus();
    }
    return Malformed(
        fmt::format("{} is {}, and with {} layers that makes more than {} "
                    "tensors; no such model is known",
                    key, sizes_.at(key), sizes_.at(layers), kMaxTensors));
  }

  void Add(std::string_view name, std::string_view part,
           std::vector<int64_t> shape) {
    model_.params.push_back(
        {fmt::format("{}{}{}", prefix_, name, part), std::move(shape), dtype_});
  }
  void AddLinear(std::string_view name, int64_t in, int64_t out, bool bias) {
    Add(name, ".weight", {out, in});
    if (bias) Add(name, ".bias", {out});
  }

  Status AddParams(const std::string& verb, Words words) {
    const size_t names = verb == "head" ? 2 : 1;
    CASTOR_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                            Sizes(words.subspan(names)));
    std::string_view rest = words[0];
    for (bool more = true; more;) {
      const size_t comma = rest.find(',');
      AddNamed(verb, std::string(rest.substr(0, comma)), words, sizes);
      more = comma != rest.npos;
      if (more) rest.remove_prefix(comma + 1);
    }
    return OkStatus();
  }

  void AddNamed(const std::string& verb, const std::string& name, Words words,
                const std::vector<int64_t>& n) {
    if (verb == "param") {
      Add(name, "", n);
    } else if (verb == "linear") {
      AddLinear(name, n[0], n[1], n.size() > 2 && n[2] != 0);
    } else if (verb == "conv") {
      Add(name, ".weight", n);
      Add(name, ".bias", {n[1]});
    } else if (verb == "norm" || verb == "layernorm") {
      Add(name, ".weight", n);
      if (verb == "layernorm") Add(name, ".bias", n);
    } else if (verb == "mlp") {
      AddGatedMlp(name, n[0], n[1], n[2] != 0);
    } else if (verb == "experts") {
      AddExperts(name, n[0], n[1], n[2]);
    } else if (verb == "head" && sizes_.at("tie_word_embeddings") != 0) {
      model_.tied.push_back({name, words[1]});
    } else {
      CASTOR_CHECK(verb == "head");
      Add(name, "", n);
    }
  }

  void AddGatedMlp(const std::string& prefix, int64_t width, int64_t inner,
                   bool bias) {
    AddLinear(prefix + "gate_proj", width, inner, bias);
    AddLinear(prefix + "up_proj", width, inner, bias);
    AddLinear(prefix + "down_proj", inner, width, bias);
  }

  void AddExperts(const std::string& name, int64_t count, int64_t width,
                  int64_t inner) {
    if (sizes_.at("fused") != 0) {
      Add(name, ".gate_up_proj", {count, 2 * inner, width});
      Add(name, ".down_proj", {count, width, inner});
      return;
    }
    for (int64_t expert = 0; expert < count; ++expert) {
      AddGatedMlp(fmt::format("{}.{}.", name, expert), width, inner, false);
    }
  }

  const ConfigValues& config_;
  const DType dtype_;
  const std::string architecture_;
  std::map<std::string, int64_t> sizes_;
  std::map<std::string, std::vector<int64_t>> lists_;
  std::string prefix_;
  std::string layer_;  // the part that `use layer` is
  FamilyModel model_;
};

// Leaves the head out and shortens the other names, as the bare model has them.
void MakeBare(FamilyModel& model) {
  const std::string prefix = std::exchange(model.base_prefix, "");
  std::erase_if(model.params, [&](const ParamSpec& spec) {
    return !spec.name.starts_with(prefix);
  });
  for (ParamSpec& spec : model.params) spec.name.erase(0, prefix.size());
  for (std::string& ignored : model.ignored_prefixes) {
    if (ignored.starts_with(prefix)) ignored.erase(0, prefix.size());
  }
  model.tied.clear();
}

Status CheckSizes(const std::vector<ParamSpec>& params) {
  for (const ParamSpec& spec : params) {
    const Result<Bytes> bytes = TensorBytes(spec.shape, spec.dtype);
    if (!bytes.ok()) {
      return bytes.status().WithContext(
          fmt::format("parameter {}", Quoted(spec.name)));
    }
  }
  return OkStatus();
}

// The architecture without a head; empty where the lines see to it.
std::string BareOf(const FamilyLine& family) {
  const std::vector<std::string>& first = family.below[0].words;
  return first[0] == "bare" ? first[1] : "";
}

}  // namespace

const std::vector<std::string>& KnownFamilies() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const FamilyLine& line : FamilyLines()) {
      if (line.words[0] == "family") names.push_back(line.words[1]);
    }
    return names;
  }();
  return kNames;
}

bool IsKnownFamily(std::string_view model_type) {
  return FindFamilyLine("family", model_type) != nullptr;
}

Result<FamilyModel> BuildFamilyModel(const ConfigValues& config,
                                     ExpertLayout experts) {
  CASTOR_ASSIGN_OR_RETURN(const std::string model_type, config.model_type());
  const FamilyLine* const family = FindFamilyLine("family", model_type);
  CASTOR_CHECK(family != nullptr);
  CASTOR_ASSIGN_OR_RETURN(const std::string architecture,
                          config.architecture());
  const std::span<const std::string> known =
      std::span<const std::string>(family->words).subspan(2);
  const std::string bare = BareOf(*family);
  const bool covered =
      !architecture.empty() &&
      (architecture == bare ||
       std::find(known.begin(), known.end(), architecture) != known.end());
  const std::string& built = covered ? architecture : known[0];
  CASTOR_ASSIGN_OR_RETURN(const DType dtype, config.dtype());
  CASTOR_ASSIGN_OR_RETURN(
      FamilyModel model,
      FamilyBuilder(config, dtype, experts == ExpertLayout::kFused, built)
          .Build(*family));
  if (built == bare) MakeBare(model);
  CASTOR_RETURN_IF_ERROR(CheckSizes(model.params));
  model.family = model_type;
  model.quantized = config.quantized();
  if (!architecture.empty() && !covered && config.other_parts().empty()) {
    model.notes.push_back(fmt::format(
        "the config names the architecture {}; its parameters are listed as "
        "those of {}",
        Quoted(architecture), known[0]));
  }
  if (!config.other_parts().empty()) {
    model.notes.push_back(fmt::format(
        "only the language part of the model (text_config) is listed; not "
        "covered: {}",
        fmt::join(config.other_parts(), ", ")));
  }
  return model;
}

}  // namespace castor
