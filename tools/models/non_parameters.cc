// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/non_parameters.h"

#include <algorithm>
#include <array>

namespace castor {
namespace {

// The name behind the last dot.
std::string_view LastPart(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == name.npos ? name : name.substr(dot + 1);
}

// The name before the last dot ends in `part`.
bool IsUnder(std::string_view name, std::string_view part) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  const std::string_view before = name.substr(0, dot);
  return before == part || (before.ends_with(part) &&
                            before[before.size() - part.size() - 1] == '.');
}

template <size_t N>
bool IsOneOf(std::string_view text,
             const std::array<std::string_view, N>& choices) {
  return std::find(choices.begin(), choices.end(), text) != choices.end();
}

// GPT-2 and its kin keep their causal mask as `attn.bias` [1,1,P,P]; a bias
// that is a parameter has one dimension.
bool IsCausalMask(std::string_view name, const std::vector<int64_t>& shape) {
  const std::string_view last = LastPart(name);
  if (last == "masked_bias") return true;
  return last == "bias" && shape.size() == 4 && shape[0] == 1 &&
         shape[1] == 1 && shape[2] == shape[3];
}

bool IsRotaryTable(std::string_view name) {
  constexpr std::array<std::string_view, 3> kTables = {"inv_freq", "cos_cached",
                                                       "sin_cached"};
  return IsUnder(name, "rotary_emb") && IsOneOf(LastPart(name), kTables);
}

// By whole words: `logit_scale` and `layer_scale` are parameters.
bool IsQuantisation(std::string_view name) {
  constexpr std::array<std::string_view, 4> kWhole = {"scales", "qzeros",
                                                      "zeros", "g_idx"};
  constexpr std::array<std::string_view, 9> kPrefixes = {
      "weight_", "qweight_", "input_", "output_", "activation_",
      "act_",    "q_",       "k_",     "v_"};
  const std::string_view last = LastPart(name);
  if (IsOneOf(last, kWhole) || last.ends_with("_zeros")) return true;
  const size_t scale = last.find("_scale");
  return scale != last.npos && IsOneOf(last.substr(0, scale + 1), kPrefixes);
}

bool IsInteger(DType dtype) {
  constexpr std::array<DType, 9> kIntegers = {
      DType::kI64, DType::kI32, DType::kI16, DType::kI8,  DType::kU64,
      DType::kU32, DType::kU16, DType::kU8,  DType::kBool};
  return std::find(kIntegers.begin(), kIntegers.end(), dtype) !=
         kIntegers.end();
}

}  // namespace

std::optional<std::string> NonParameterReason(std::string_view name,
                                              const std::vector<int64_t>& shape,
                                              DType dtype) {
  if (IsCausalMask(name, shape)) return "attention mask";
  if (IsRotaryTable(name)) return "rotary table";
  if (LastPart(name) == "e_score_correction_bias") {
    return "router statistic, not trained";
  }
  if (IsQuantisation(name)) return "quantisation data";
  if (IsInteger(dtype)) return "integers, which no optimizer trains";
  return std::nullopt;
}

}  // namespace castor
