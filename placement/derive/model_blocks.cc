// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/derive/model_blocks.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "chunk/base/units.h"
#include "chunk/search/layer_certificate.h"
#include "chunk/search/layer_repeat.h"

namespace castor {
namespace {

// A parameter as its block sees it: a tied name is another one of its own.
struct Part {
  std::string_view name;
  ParamId param;
  size_t dims = 0;
};

// The name up to and with its first number between dots: "h.3" of
// "h.3.attn.c_attn.weight". Empty where it has none.
std::string_view LayerName(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view piece = name.substr(begin, end - begin);
    if (!piece.empty() && std::all_of(piece.begin(), piece.end(), [](char c) {
          return c >= '0' && c <= '9';
        })) {
      return name.substr(0, end);
    }
    begin = end + 1;
  }
  return {};
}

std::string_view ModuleName(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == name.npos ? name : name.substr(0, dot);
}

bool HasAny(std::string_view name, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return name.find(word) != name.npos;
  });
}

// What the parameter of a model does that stands outside its layers.
std::optional<BlockKind> KindByName(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kEmbeddingWords = {
      "embed", "embd", "wte", "wpe", "shared", "project_in"};
  static constexpr std::array<std::string_view, 8> kHeadWords = {
      "head",   "final",  "ln_f", "norm",
      "output", "pooler", "cls",  "project_out"};
  // GPT-NeoX's head.
  if (name.find("embed_out") != name.npos) return BlockKind::kHead;
  if (HasAny(name, kEmbeddingWords)) return BlockKind::kEmbedding;
  if (HasAny(name, kHeadWords)) return BlockKind::kHead;
  return std::nullopt;
}

// Consecutive parts that belong together.
struct Section {
  std::string_view name;
  BlockKind kind = BlockKind::kOther;
  std::vector<Part> parts;
};

// A section per layer, by name; others by module, kOther. Empty where no name
// tells a layer.
std::vector<Section> SectionsByName(const std::vector<Part>& parts) {
  std::vector<Section> sections;
  // Where a layer's section is: expert lists and the like may lie apart.
  std::map<std::string_view, size_t> layers;
  for (const Part& part : parts) {
    if (const std::string_view layer = LayerName(part.name); !layer.empty()) {
      const auto [at, is_new] = layers.try_emplace(layer, sections.size());
      if (is_new) sections.push_back({layer, BlockKind::kLayer, {}});
      sections[at->second].parts.push_back(part);
      continue;
    }
    const std::string_view module = ModuleName(part.name);
    if (sections.empty() || sections.back().kind == BlockKind::kLayer ||
        sections.back().name != module) {
      sections.push_back({module, BlockKind::kOther, {}});
    }
    sections.back().parts.push_back(part);
  }
  if (layers.empty()) sections.clear();
  return sections;
}

std::vector<Section> SectionsByModule(const std::vector<Part>& parts) {
  std::vector<Section> sections;
  for (const Part& part : parts) {
    const std::string_view module = ModuleName(part.name);
    if (sections.empty() || sections.back().name != module) {
      sections.push_back({module, BlockKind::kOther, {}});
    }
    sections.back().parts.push_back(part);
  }
  return sections;
}

// A section per repeat, by sizes; others by module.
std::vector<Section> SectionsBySize(std::span<const ParamSpec> params,
                                    const std::vector<Part>& parts) {
  std::vector<Elements> sizes;
  for (const Part& part : parts) {
    const ParamSpec& spec = params[part.param.index()];
    sizes.push_back(CountElements(spec.shape, spec.dtype).value());
  }
  const std::optional<LayerRepeat> repeat = FindLayerRepeat(sizes);
  if (!repeat) return SectionsByModule(parts);
  const auto slice = [&](int64_t from, int64_t to) {
    return std::vector<Part>(parts.begin() + from, parts.begin() + to);
  };
  std::vector<Section> sections = SectionsByModule(slice(0, repeat->first));
  int64_t at = repeat->first;
  for (int64_t i = 0; i < repeat->repeats; ++i, at += repeat->params) {
    std::vector<Part> layer = slice(at, at + repeat->params);
    sections.push_back(
        {layer.front().name, BlockKind::kLayer, std::move(layer)});
  }
  for (Section& section :
       SectionsByModule(slice(at, static_cast<int64_t>(parts.size())))) {
    sections.push_back(std::move(section));
  }
  return sections;
}

bool IsLayer(const Section& section) {
  return section.kind == BlockKind::kLayer;
}

bool HasLayers(const std::vector<Section>& sections) {
  return std::any_of(sections.begin(), sections.end(), IsLayer);
}

// The sections outside all layers become one in front and one behind.
std::vector<Section> WithEnds(std::vector<Section> sections) {
  const auto first = std::find_if(sections.begin(), sections.end(), IsLayer);
  if (first == sections.end()) return sections;
  const auto last =
      std::find_if(sections.rbegin(), sections.rend(), IsLayer).base();
  Section embedding{"embedding", BlockKind::kEmbedding, {}};
  Section head{"head", BlockKind::kHead, {}};
  const auto take = [&](const Section& section, BlockKind by_place) {
    for (const Part& part : section.parts) {
      const BlockKind kind = KindByName(part.name).value_or(by_place);
      (kind == BlockKind::kHead ? head : embedding).parts.push_back(part);
    }
  };
  for (auto at = sections.begin(); at != first; ++at) {
    take(*at, BlockKind::kEmbedding);
  }
  for (auto at = last; at != sections.end(); ++at) take(*at, BlockKind::kHead);
  std::vector<Section> all;
  if (!embedding.parts.empty()) all.push_back(std::move(embedding));
  std::move(first, last, std::back_inserter(all));
  if (!head.parts.empty()) all.push_back(std::move(head));
  return all;
}

// The parts that a trainer acquires together.
std::vector<std::span<const Part>> Units(const std::vector<Part>& parts,
                                         HoldUnit unit) {
  if (unit == HoldUnit::kBlock) return {parts};
  std::vector<std::span<const Part>> units;
  for (size_t begin = 0; begin < parts.size();) {
    size_t end = begin + 1;
    while (end < parts.size() &&
           ModuleName(parts[end].name) == ModuleName(parts[begin].name)) {
      ++end;
    }
    units.push_back(std::span(parts).subspan(begin, end - begin));
    begin = end;
  }
  return units;
}

ModelBlock BlockOf(const Section& section, HoldUnit unit) {
  ModelBlock block;
  block.name = section.name;
  block.kind = section.kind;
  for (const std::span<const Part> parts : Units(section.parts, unit)) {
    ParamUse forward;
    ParamUse backward;
    for (const Part& part : parts) {
      block.has_experts |= part.name.find(".experts.") != part.name.npos;
      forward.hold.push_back(part.param);
      const bool table =
          section.kind == BlockKind::kEmbedding && part.dims >= 2;
      if (!table) backward.hold.push_back(part.param);
      backward.grads.push_back(part.param);
    }
    block.forward.push_back(std::move(forward));
    block.backward.push_back(std::move(backward));
  }
  std::reverse(block.backward.begin(), block.backward.end());
  return block;
}

}  // namespace

std::vector<ModelBlock> FindModelBlocks(std::span<const ParamSpec> params,
                                        std::span<const TiedParam> tied,
                                        HoldUnit unit) {
  std::vector<Part> parts;
  for (size_t p = 0; p < params.size(); ++p) {
    parts.push_back({params[p].name, ParamId(static_cast<int32_t>(p)),
                     params[p].shape.size()});
  }
  for (const TiedParam& name : tied) {
    parts.push_back(
        {name.name, name.param, params[name.param.index()].shape.size()});
  }
  std::vector<Section> sections = SectionsByName(parts);
  if (sections.empty()) sections = SectionsBySize(params, parts);
  // What nothing tells apart is held together.
  if (unit == HoldUnit::kBlock && !parts.empty() && !HasLayers(sections)) {
    sections = {{"model", BlockKind::kOther, parts}};
  }
  std::vector<ModelBlock> blocks;
  for (const Section& section : WithEnds(std::move(sections))) {
    blocks.push_back(BlockOf(section, unit));
  }
  return blocks;
}

std::optional<TiedParam> SuspectedTie(std::span<const ParamSpec> params) {
  std::optional<ParamId> table;
  for (const ModelBlock& block :
       FindModelBlocks(params, {}, HoldUnit::kBlock)) {
    for (const ParamUse& use : block.forward) {
      for (const ParamId id : use.hold) {
        if (params[id.index()].shape.size() < 2) continue;
        if (block.kind == BlockKind::kHead) return std::nullopt;
        if (block.kind == BlockKind::kEmbedding && !table) table = id;
      }
    }
  }
  if (!table) return std::nullopt;
  return TiedParam{"lm_head.weight", *table};
}

}  // namespace castor
