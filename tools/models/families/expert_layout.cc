// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/families/expert_layout.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "chunk/text/quote.h"

namespace castor {
namespace {

// More than any model has.
constexpr int64_t kMaxExperts = 65'536;

// More tensors than any model has, all experts of all layers together.
constexpr size_t kMaxSplit = 2'000'000;

enum Role : size_t { kGate, kUp, kDown, kRoles };

constexpr std::array<std::array<std::string_view, kRoles>, 2> kSpellings = {{
    {"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
    {"w1.weight", "w3.weight", "w2.weight"},
}};

constexpr std::string_view kExperts = ".experts.";

// `LAYER.experts.7.up_proj.weight`, taken apart.
struct ExpertName {
  std::string layer;  // up to and with ".experts"
  int64_t expert = 0;
  Role role = kGate;
};

std::optional<ExpertName> ParseExpertName(std::string_view name) {
  const size_t at = name.find(kExperts);
  if (at == name.npos) return std::nullopt;
  std::string_view rest = name.substr(at + kExperts.size());
  ExpertName parsed;
  parsed.layer = name.substr(0, at + kExperts.size() - 1);
  const auto [stop, error] =
      std::from_chars(rest.data(), rest.data() + rest.size(), parsed.expert);
  if (error != std::errc() || parsed.expert < 0 ||
      parsed.expert > kMaxExperts) {
    return std::nullopt;
  }
  rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
  for (const auto& spelling : kSpellings) {
    for (size_t role = 0; role < kRoles; ++role) {
      if (rest.size() == spelling[role].size() + 1 && rest.front() == '.' &&
          rest.substr(1) == spelling[role]) {
        parsed.role = static_cast<Role>(role);
        return parsed;
      }
    }
  }
  return std::nullopt;
}

constexpr std::string_view kFusedGateUp = ".experts.gate_up_proj";
constexpr std::string_view kFusedDown = ".experts.down_proj";

bool IsFusedName(std::string_view name) {
  return name.ends_with(kFusedGateUp) || name.ends_with(kFusedDown);
}

// The tensors that one layer's experts share.
struct FusedLayer {
  const ParamSpec* gate_up = nullptr;
  const ParamSpec* down = nullptr;
  const ParamSpec* other = nullptr;  // a bias, or a matrix without a gate
};

bool IsSplittable(const FusedLayer& layer) {
  if (layer.other != nullptr) return false;
  if (layer.gate_up == nullptr || layer.down == nullptr) return true;
  const std::vector<int64_t>& gate_up = layer.gate_up->shape;
  const std::vector<int64_t>& down = layer.down->shape;
  return gate_up.size() != 3 || down.size() != 3 ||
         (gate_up[1] % 2 == 0 && gate_up[1] / 2 == down[2] &&
          gate_up[2] == down[1]);
}

// InvalidArgument where fused tensors are of another form than those two: some
// families have biases, no gate, or hold the matrices the other way around.
Status CheckForms(const std::vector<ParamSpec>& params) {
  std::unordered_map<std::string_view, FusedLayer> layers;
  for (const ParamSpec& spec : params) {
    const std::string_view name = spec.name;
    const std::string_view layer = name.substr(0, name.rfind('.') + 1);
    if (!layer.ends_with(kExperts)) continue;
    FusedLayer& fused = layers[layer];
    (name.ends_with(kFusedGateUp) ? fused.gate_up
     : name.ends_with(kFusedDown) ? fused.down
                                  : fused.other) = &spec;
  }
  for (const ParamSpec& spec : params) {
    const std::string_view name = spec.name;
    if (!IsFusedName(name)) continue;
    const FusedLayer& layer = layers[name.substr(0, name.rfind('.') + 1)];
    if (IsSplittable(layer)) continue;
    return InvalidArgument(fmt::format(
        "{} cannot be split by expert: {}; leave --expert-layout away",
        Quoted(name),
        layer.other != nullptr
            ? fmt::format("its experts also have {}", Quoted(layer.other->name))
            : "gate_up_proj and down_proj are not [E,2M,H] and [E,H,M]"));
  }
  return OkStatus();
}

// The tensors of one layer's experts, as indices into the list.
struct Layer {
  std::map<int64_t, std::array<std::optional<size_t>, kRoles>> experts;
};

Status BadLayer(std::string_view layer, std::string_view why) {
  return Malformed(fmt::format("{} cannot be fused: {}", Quoted(layer), why));
}

// All experts from 0 on are there, with equal shapes and types that match.
Status CheckLayer(const std::string& name, const Layer& layer,
                  const std::vector<ParamSpec>& params) {
  int64_t expected = 0;
  std::array<const ParamSpec*, kRoles> first = {};
  for (const auto& [expert, roles] : layer.experts) {
    if (expert != expected++) {
      return BadLayer(name, fmt::format("expert {} is missing", expected - 1));
    }
    for (size_t role = 0; role < kRoles; ++role) {
      if (!roles[role]) {
        return BadLayer(name, fmt::format("expert {} has no {}", expert,
                                          kSpellings[0][role]));
      }
      const ParamSpec& spec = params[*roles[role]];
      if (first[role] == nullptr) first[role] = &spec;
      if (spec.shape != first[role]->shape ||
          spec.dtype != first[kGate]->dtype) {
        return BadLayer(name, fmt::format("{} differs from that of expert 0",
                                          Quoted(spec.name)));
      }
    }
  }
  const std::vector<int64_t>& gate = first[kGate]->shape;
  const std::vector<int64_t>& down = first[kDown]->shape;
  if (gate.size() != 2 || first[kUp]->shape != gate || down.size() != 2 ||
      down[0] != gate[1] || down[1] != gate[0]) {
    return BadLayer(name, "gate and up are not [M,H] and down [H,M]");
  }
  return OkStatus();
}

Status Fuse(std::vector<ParamSpec>& params) {
  std::unordered_map<std::string, Layer> layers;
  std::vector<std::optional<ExpertName>> parsed;
  for (size_t i = 0; i < params.size(); ++i) {
    parsed.push_back(ParseExpertName(params[i].name));
    if (!parsed[i]) continue;
    std::optional<size_t>& place =
        layers[parsed[i]->layer].experts[parsed[i]->expert][parsed[i]->role];
    if (place) {
      return BadLayer(
          parsed[i]->layer,
          fmt::format("{} and {} are the same matrix",
                      Quoted(params[*place].name), Quoted(params[i].name)));
    }
    place = i;
  }
  std::vector<ParamSpec> fused;
  std::unordered_map<std::string, bool> written;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!parsed[i]) {
      fused.push_back(params[i]);
      continue;
    }
    const std::string& name = parsed[i]->layer;
    if (std::exchange(written[name], true)) continue;
    const Layer& layer = layers[name];
    CASTOR_RETURN_IF_ERROR(CheckLayer(name, layer, params));
    const ParamSpec& gate = params[*layer.experts.at(0)[kGate]];
    const auto experts = static_cast<int64_t>(layer.experts.size());
    int64_t both = 0;
    if (__builtin_mul_overflow(gate.shape[0], 2, &both)) {
      return BadLayer(name, "its shapes overflow");
    }
    fused.push_back({name + ".gate_up_proj",
                     {experts, both, gate.shape[1]},
                     gate.dtype,
                     gate.trainable});
    fused.push_back({name + ".down_proj",
                     {experts, gate.shape[1], gate.shape[0]},
                     gate.dtype,
                     gate.trainable});
  }
  params = std::move(fused);
  return OkStatus();
}

// A fused tensor, and the names and shapes of the matrices it holds per expert.
struct FusedTensor {
  std::string layer;  // up to and with ".experts"
  std::vector<std::string_view> roles;
  std::vector<int64_t> shape;
  int64_t experts = 0;
};

Result<FusedTensor> TakeApart(const ParamSpec& spec) {
  FusedTensor fused;
  const bool down = spec.name.ends_with(".down_proj");
  if (spec.shape.size() != 3 || spec.shape[0] > kMaxExperts ||
      (!down && spec.shape[1] % 2 != 0)) {
    return Malformed(fmt::format(
        "{} cannot be split by expert: its shape is not {}, with at most {} "
        "experts",
        Quoted(spec.name), down ? "[E,H,M]" : "[E,2M,H]", kMaxExperts));
  }
  fused.layer = spec.name.substr(0, spec.name.rfind('.'));
  fused.experts = spec.shape[0];
  if (down) {
    fused.roles = {kSpellings[0][kDown]};
    fused.shape = {spec.shape[1], spec.shape[2]};
  } else {
    fused.roles = {kSpellings[0][kGate], kSpellings[0][kUp]};
    fused.shape = {spec.shape[1] / 2, spec.shape[2]};
  }
  return fused;
}

// Before any is made: how many there will be.
Status CheckSplit(const std::vector<ParamSpec>& params) {
  CASTOR_RETURN_IF_ERROR(CheckForms(params));
  size_t split = 0;
  for (const ParamSpec& spec : params) {
    if (!IsFusedName(spec.name)) continue;
    CASTOR_ASSIGN_OR_RETURN(const FusedTensor fused, TakeApart(spec));
    split += static_cast<size_t>(fused.experts) * fused.roles.size();
    if (split > kMaxSplit) {
      return Malformed(
          fmt::format("splitting {} by expert makes more than {} tensors",
                      Quoted(spec.name), kMaxSplit));
    }
  }
  return Status();
}

// Expert by expert, where the layer's two tensors stand together as they are
// registered; else each in its own place.
Status Split(std::vector<ParamSpec>& params) {
  CASTOR_RETURN_IF_ERROR(CheckSplit(params));
  std::vector<ParamSpec> split;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!IsFusedName(params[i].name)) {
      split.push_back(params[i]);
      continue;
    }
    std::vector<FusedTensor> together(1);
    const ParamSpec& spec = params[i];
    CASTOR_ASSIGN_OR_RETURN(together[0], TakeApart(spec));
    if (i + 1 < params.size() && IsFusedName(params[i + 1].name)) {
      CASTOR_ASSIGN_OR_RETURN(FusedTensor next, TakeApart(params[i + 1]));
      if (next.layer == together[0].layer &&
          next.experts == together[0].experts &&
          params[i + 1].dtype == spec.dtype &&
          params[i + 1].trainable == spec.trainable) {
        together.push_back(std::move(next));
        ++i;
      }
    }
    for (int64_t expert = 0; expert < together[0].experts; ++expert) {
      for (const FusedTensor& fused : together) {
        for (const std::string_view role : fused.roles) {
          split.push_back({fmt::format("{}.{}.{}", fused.layer, expert, role),
                           fused.shape, spec.dtype, spec.trainable});
        }
      }
    }
  }
  params = std::move(split);
  return OkStatus();
}

}  // namespace

std::optional<ExpertLayout> FindExpertLayout(
    const std::vector<ParamSpec>& params) {
  for (const ParamSpec& spec : params) {
    if (IsFusedName(spec.name)) {
      return CheckForms(params).ok() ? std::optional(ExpertLayout::kFused)
                                     : std::nullopt;
    }
    if (ParseExpertName(spec.name)) return ExpertLayout::kPerExpert;
  }
  return std::nullopt;
}

Status ApplyExpertLayout(ExpertLayout layout, std::vector<ParamSpec>& params) {
  return layout == ExpertLayout::kFused ? Fuse(params) : Split(params);
}

}  // namespace castor
