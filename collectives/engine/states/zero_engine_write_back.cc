// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a trainer wrote to parameters outside the engine, and the agreement of
// ranks on it.

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <string_view>
#include <vector>

#include "collectives/engine/zero_engine_impl.h"

namespace castor {

Status ZeroEngine::Impl::AgreeBy(std::span<int64_t> words) {
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  return LeastOf(words, "agree by words of the trainer's");
}

Status ZeroEngine::Impl::WriteBack(std::span<const ParamValues> written) {
  constexpr std::string_view kCall = "WriteBack()";
  CASTOR_RETURN_IF_ERROR(RequireSealed());
  CASTOR_RETURN_IF_ERROR(RequireNothingOpen(kCall));
  CASTOR_RETURN_IF_ERROR(AgreeOnWrites(written));
  if (written.empty()) return OkStatus();
  for (const auto& [param, values] : written) {
    CASTOR_CHECK_EQ(static_cast<int64_t>(values.size()),
                    params_[param.index()].size.count());
    const ChunkId chunk = layout_->place(param).chunk;
    if (!chunk.valid() || micro_batches_ == 0) continue;
    CASTOR_RETURN_IF_ERROR(RequireNotUpdated(chunk));
    if (grads_in_place()) CASTOR_RETURN_IF_ERROR(RequireNotOverwritten(param));
  }
  std::vector<bool> stale(layout_->chunks().size());
  for (const auto& [param, values] : written) {
    const ChunkId chunk = layout_->place(param).chunk;
    if (chunk.valid()) stale[chunk.index()] = true;
  }
  manager_->DropStale(stale);
  Status status;
  for (const auto& [param, values] : written) {
    const ChunkId chunk = layout_->place(param).chunk;
    for (StateKind kind : {StateKind::kMaster, StateKind::kParam}) {
      if (!status.ok() || !chunk.valid() || !store_->has(chunk, kind)) continue;
      status = Overwrite(param, kind, values, Differing::kInOwnType);
    }
  }
  manager_->Restore();
  CASTOR_RETURN_IF_ERROR(status);
  return Health();
}

Status ZeroEngine::Impl::AgreeOnWrites(std::span<const ParamValues> written) {
  if (comm_->world() == 1) return OkStatus();
  // Positive, and never that of nothing.
  const auto hash_of = [](std::span<const float> values) {
    return static_cast<int64_t>(
               XXH3_64bits(values.data(), values.size_bytes()) >> 2) +
           1;
  };
  std::vector<int64_t> hashes(params_.size());
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
  CASTOR_RETURN_IF_ERROR(LeastOf(least, "write parameters"));
  if (least[0] == -least[1]) return OkStatus();
  std::vector<int64_t> words = hashes;
  for (const int64_t hash : hashes) words.push_back(-hash);
  CASTOR_RETURN_IF_ERROR(LeastOf(words, "find who wrote"));
  size_t differs = 0;
  while (words[differs] == -words[hashes.size() + differs]) ++differs;
  return InvalidArgument(fmt::format(
      "{} was written to {}: all ranks must write the same",
      Name(ParamId(static_cast<int32_t>(differs))),
      words[differs] == 0 ? "by some ranks only" : "with different values"));
}

}  // namespace castor
