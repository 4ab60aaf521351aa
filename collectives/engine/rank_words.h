// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ENGINE_RANK_WORDS_H_
#define CASTOR_COLLECTIVES_ENGINE_RANK_WORDS_H_

// Words that ranks compare or add up, on the lane of collectives. All calls
// block, and all ranks make them in the same order. No state. Owner thread
// only.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "collectives/communicator.h"
#include "collectives/engine/engine_base.h"

namespace castor::internal {

class RankWords {
 public:
  explicit RankWords(EngineBase& base)
      : model_(base.model),
        lanes_(base.lanes),
        record_(base.record),
        health_(base.health) {}

  // As internal::AgreeOn and internal::SumOverRanks (rank_agreement.h), of
  // words that are there.
  Status AgreeOn(const Status& own, uint64_t same,
                 std::string_view purpose) const;
  Status SumOverRanks(std::span<uint64_t> sums, std::string_view purpose) const;
  // Each word becomes the least that any rank has in its place.
  Status LeastOf(std::span<int64_t> words, std::string_view purpose) const;
  // Each word becomes the greatest, on one rank too.
  Status GreatestOf(std::span<uint64_t> words, std::string_view purpose) const;
  // Adds up words that are put together on the lane, behind which it waits.
  Status AddUp(std::span<uint64_t> words, std::string_view purpose) const;
  // Whether all ranks give these values of a parameter: else InvalidArgument.
  Status AgreeOnValues(ParamId param, std::span<const float> values,
                       std::string_view what) const;

 private:
  Status Reduce(void* words, size_t count, DType dtype, ReduceOp op,
                const CollectiveTag& tag) const;

  const EngineModel& model_;
  const EngineLanes& lanes_;
  const EngineRecord& record_;
  EngineHealth& health_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_ENGINE_RANK_WORDS_H_
