// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/rank_words.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>

#include "collectives/world/rank_agreement.h"

namespace castor::internal {

Status RankWords::AgreeOn(const Status& own, uint64_t same,
                          std::string_view purpose) const {
  return internal::AgreeOn(*model_.comm, *lanes_.comm, own, same, purpose);
}

Status RankWords::SumOverRanks(std::span<uint64_t> sums,
                               std::string_view purpose) const {
  return internal::SumOverRanks(*model_.comm, *lanes_.comm, sums, purpose);
}

Status RankWords::Reduce(void* words, size_t count, DType dtype, ReduceOp op,
                         const CollectiveTag& tag) const {
  model_.comm->AllReduce(*lanes_.comm, words,
                         Elements(static_cast<int64_t>(count)), dtype, op, tag);
  return lanes_.comm->Record().Wait();
}

Status RankWords::LeastOf(std::span<int64_t> words,
                          std::string_view purpose) const {
  if (model_.comm->world() == 1 || words.empty()) return OkStatus();
  return Reduce(words.data(), words.size(), DType::kI64, ReduceOp::kMin,
                {ChunkId(), record_.SharedMoment(), purpose});
}

Status RankWords::GreatestOf(std::span<uint64_t> words,
                             std::string_view purpose) const {
  return Reduce(words.data(), words.size(), DType::kU64, ReduceOp::kMax,
                {ChunkId(), record_.Moment(), purpose});
}

Status RankWords::AddUp(std::span<uint64_t> words,
                        std::string_view purpose) const {
  if (model_.comm->world() == 1) {
    CASTOR_RETURN_IF_ERROR(lanes_.comm->Record().Wait());
    Status ended = model_.comm->Health();
    return ended.ok() ? ended : health_.Fail(ended);
  }
  return Reduce(words.data(), words.size(), DType::kU64, ReduceOp::kSum,
                {ChunkId(), record_.SharedMoment(), purpose});
}

Status RankWords::AgreeOnValues(ParamId param, std::span<const float> values,
                                std::string_view what) const {
  const auto hash = static_cast<int64_t>(
      XXH3_64bits(values.data(), values.size_bytes()) >> 2);
  std::array<int64_t, 2> least = {hash, -hash};
  CASTOR_RETURN_IF_ERROR(
      Reduce(least.data(), least.size(), DType::kI64, ReduceOp::kMin,
             {model_.chunk_of(param), record_.SharedMoment(), what}));
  if (least[0] == -least[1]) return OkStatus();
  return InvalidArgument(fmt::format(
      "the ranks give {} different values: all must give the same ones",
      model_.Name(param)));
}

}  // namespace castor::internal
