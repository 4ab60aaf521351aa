// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/non_parameters.h"

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
bool IsMask(std::string_view name, const std::vector<int64_t>& shape) {
  constexpr std::array<std::string_view, 3> kMasks = {
      "masked_bias", "causal_mask", "attn_mask"};
  const std::string_view last = LastPart(name);
  if (IsOneOf(last, kMasks)) return true;
  return last == "bias" && shape.size() == 4 && shape[0] == 1 &&
         shape[1] == 1 && shape[2] == shape[3];
}

bool IsRotaryTable(std::string_view name) {
  constexpr std::array<std::string_view, 2> kFrequencies = {
      "inv_freq", "original_inv_freq"};
  constexpr std::array<std::string_view, 2> kCached = {"cos_cached",
                                                       "sin_cached"};
  const std::string_view last = LastPart(name);
  return IsOneOf(last, kFrequencies) ||
         (IsUnder(name, "rotary_emb") && IsOneOf(last, kCached));
}

// Numbers of places that the reference code counts up itself. Half-precision
// copies of whole checkpoints turn these integers into floats.
bool IsPositionTable(std::string_view name) {
  constexpr std::array<std::string_view, 5> kTables = {
      "position_ids", "token_type_ids", "relative_position_index",
      "relative_coords_table", "_float_tensor"};
  return IsOneOf(LastPart(name), kTables);
}

bool IsBatchStatistic(std::string_view name) {
  constexpr std::array<std::string_view, 3> kStatistics = {
      "running_mean", "running_var", "num_batches_tracked"};
  return IsOneOf(LastPart(name), kStatistics);
}

// Balances the load of experts by a rule of its own, without a gradient.
bool IsRouterStatistic(std::string_view name) {
  constexpr std::array<std::string_view, 2> kLast = {"e_score_correction_bias",
                                                     "expert_bias"};
  return IsOneOf(LastPart(name), kLast);
}

// By whole words: `logit_scale` and `layer_scale` are parameters.
bool IsQuantisation(std::string_view name) {
  constexpr std::array<std::string_view, 9> kWhole = {
      "scales",    "qzeros",           "zeros",
      "g_idx",     "absmax",           "nested_absmax",
      "quant_map", "nested_quant_map", "SCB"};
  constexpr std::array<std::string_view, 10> kPrefixes = {
      "weight_", "qweight_", "input_", "output_", "activation_",
      "act_",    "q_",       "k_",     "v_",      "kv_"};
  constexpr std::array<std::string_view, 5> kEnds = {
      "_zeros", "_zero_point", "_scales", "_global_scale", "_g_idx"};
  const std::string_view last = LastPart(name);
  if (IsOneOf(last, kWhole) || IsUnder(name, "quant_state")) return true;
  if (std::any_of(kEnds.begin(), kEnds.end(),
                  [&](std::string_view end) { return last.ends_with(end); })) {
    return true;
  }
  const size_t scale = last.find("_scale");
  return scale != last.npos && IsOneOf(last.substr(0, scale + 1), kPrefixes);
}

// Integers that hold a matrix in fewer bits: GPTQ, AWQ, compressed tensors,
// bitsandbytes and MXFP4 name them so.
bool IsPackedName(std::string_view name) {
  constexpr std::array<std::string_view, 4> kLast = {"qweight", "weight_packed",
                                                     "q_weight", "weight"};
  const std::string_view last = LastPart(name);
  return IsOneOf(last, kLast) || last.ends_with("_blocks");
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
  if (IsMask(name, shape)) return "attention mask";
  if (IsRotaryTable(name)) return "rotary table";
  if (IsPositionTable(name)) return "position table";
  if (IsBatchStatistic(name)) return "running statistic of batches";
  if (IsRouterStatistic(name)) return "router statistic, not trained";
  if (IsQuantisation(name)) return "quantisation data";
  if (!IsInteger(dtype)) return std::nullopt;
  if (IsPackedName(name)) return std::string(kPackedWeights);
  return "integers, which no optimizer trains";
}

}  // namespace castor
