// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a trainer wrote to parameters outside the engine, and the agreement of
// ranks on it.

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <string_view>
#include <vector>

#include "collectives/engine/states/state_values.h"

namespace castor::internal {

Status StateValues::WriteBack(
    std::span<const ZeroEngine::ParamValues> written) {
  constexpr std::string_view kCall = "WriteBack()";
  CASTOR_RETURN_IF_ERROR(rules_.RequireSealed());
  CASTOR_RETURN_IF_ERROR(rules_.RequireNothingOpen(kCall));
  CASTOR_RETURN_IF_ERROR(AgreeOnWrites(written));
  if (written.empty()) return OkStatus();
  for (const auto& [param, values] : written) {
    CheckSize(param, values.size());
    const ChunkId chunk = model_.chunk_of(param);
    if (!chunk.valid() || progress_.micro_batches == 0) continue;
    CASTOR_RETURN_IF_ERROR(optimizer_.early().RequireNotUpdated(chunk));
    if (model_.grads_in_place())
      CASTOR_RETURN_IF_ERROR(reducer_.overwritten().RequireNot(param));
  }
  std::vector<bool> stale(model_.chunks());
  for (const auto& [param, values] : written) {
    const ChunkId chunk = model_.chunk_of(param);
    if (chunk.valid()) stale[chunk.index()] = true;
  }
  memory_.DropStale(stale);
  Status status;
  for (const auto& [param, values] : written) {
    const ChunkId chunk = model_.chunk_of(param);
    for (StateKind kind : {StateKind::kMaster, StateKind::kParam}) {
      if (!status.ok() || !chunk.valid() || !memory_.store().has(chunk, kind))
        continue;
      status = Overwrite(param, kind, values, Differing::kInOwnType);
    }
  }
  memory_.RestoreStale();
  CASTOR_RETURN_IF_ERROR(status);
  return health_.status();
}

Status StateValues::AgreeOnWrites(
    std::span<const ZeroEngine::ParamValues> written) const {
  if (model_.comm->world() == 1) return OkStatus();
  // Positive, and never that of nothing.
  const auto hash_of = [](std::span<const float> values) {
    return static_cast<int64_t>(
               XXH3_64bits(values.data(), values.size_bytes()) >> 2) +
           1;
  };
  std::vector<int64_t> hashes(model_.params.size());
  for (const auto& [param, values] : written) {
    hashes[param.index()] = hash_of(values);
  }
  const auto all =
      written.empty()
          ? 0
          : static_cast<int64_t>(
                XXH3_64bits(hashes.data(), hashes.size() * sizeof(int64_t)) >>
                2) +
                1;
  std::array<int64_t, 2> least = {all, -all};
  CASTOR_RETURN_IF_ERROR(words_.LeastOf(least, "write parameters"));
  if (least[0] == -least[1]) return OkStatus();
  std::vector<int64_t> words = hashes;
  for (const int64_t hash : hashes) words.push_back(-hash);
  CASTOR_RETURN_IF_ERROR(words_.LeastOf(words, "find who wrote"));
  size_t differs = 0;
  while (words[differs] == -words[hashes.size() + differs]) ++differs;
  return InvalidArgument(fmt::format(
      "{} was written to {}: all ranks must write the same",
      model_.Name(ParamId(static_cast<int32_t>(differs))),
      words[differs] == 0 ? "by some ranks only" : "with different values"));
}

}  // namespace castor::internal
