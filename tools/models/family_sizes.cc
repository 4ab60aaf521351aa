// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/family_sizes.h"

#include <fmt/format.h>

namespace castor {

Status RefuseMoreThan(int64_t most, std::string_view key, int64_t value) {
  if (value <= most) return OkStatus();
  return Malformed(
      fmt::format("{} is {}; more than {} is refused", key, value, most));
}

Status RefuseUnevenHeads(std::string_view width_key, int64_t width,
                         std::string_view heads_key, int64_t heads) {
  if (width % heads == 0) return OkStatus();
  return Malformed(
      fmt::format("{} {} is not a multiple of {} {}: no such attention exists",
                  width_key, width, heads_key, heads));
}

Result<int64_t> ReadLayers(const ConfigValues& config, const std::string& key,
                           const std::string& alias, int64_t fallback) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t layers,
                          config.IntAlias(key, alias, fallback, 0));
  CASTOR_RETURN_IF_ERROR(RefuseMoreThan(kMaxLayers, key, layers));
  return layers;
}

Result<int64_t> ReadHeads(const ConfigValues& config, const std::string& key,
                          const std::string& alias, int64_t fallback) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t heads,
                          config.IntAlias(key, alias, fallback));
  CASTOR_RETURN_IF_ERROR(RefuseMoreThan(kMaxHeads, key, heads));
  return heads;
}

Result<int64_t> ReadExperts(const ConfigValues& config, const std::string& key,
                            const std::string& alias, int64_t fallback,
                            int64_t least, int64_t layers) {
  CASTOR_ASSIGN_OR_RETURN(const int64_t experts,
                          config.IntAlias(key, alias, fallback, least));
  CASTOR_RETURN_IF_ERROR(RefuseMoreThan(kMaxExperts, key, experts));
  if (3 * experts * layers > kMaxFamilyTensors) {
    return Malformed(
        fmt::format("{} is {}, and with {} layers that makes more than {} "
                    "tensors; no such model is known",
                    key, experts, layers, kMaxFamilyTensors));
  }
  return experts;
}

Result<AttentionSizes> ReadAttention(const ConfigValues& config, int64_t width,
                                     const AttentionSizes& defaults) {
  AttentionSizes sizes;
  CASTOR_ASSIGN_OR_RETURN(sizes.heads,
                          ReadHeads(config, "num_attention_heads",
                                    "num_attention_heads", defaults.heads));
  const int64_t key_value_heads =
      defaults.key_value_heads == 0 ? sizes.heads : defaults.key_value_heads;
  CASTOR_ASSIGN_OR_RETURN(
      sizes.key_value_heads,
      config.IntOrNull("num_key_value_heads", key_value_heads, sizes.heads));
  if (sizes.heads % sizes.key_value_heads != 0) {
    return Malformed(
        fmt::format("num_attention_heads {} is not a multiple of "
                    "num_key_value_heads {}: no such attention exists",
                    sizes.heads, sizes.key_value_heads));
  }
  CASTOR_ASSIGN_OR_RETURN(sizes.head_dim,
                          config.IntOrNull("head_dim", defaults.head_dim, 0));
  if (sizes.head_dim != 0) return sizes;
  if (width % sizes.heads != 0) {
    return Malformed(
        fmt::format("hidden_size {} is not a multiple of num_attention_heads "
                    "{}, and head_dim is not given",
                    width, sizes.heads));
  }
  sizes.head_dim = width / sizes.heads;
  return sizes;
}

}  // namespace castor
