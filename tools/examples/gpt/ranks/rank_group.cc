// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/ranks/rank_group.h"

#include <cstddef>
#include <cstring>

#include "collectives/world/rank_agreement.h"

namespace castor::gpt {

// A sum to which every rank adds nothing but its own: an operation of host
// memory on every backend.
Status ExchangeBytes(Communicator& ranks, const void* mine, void* all,
                     Bytes size) {
  constexpr int64_t kWord = sizeof(uint64_t);
  const auto count = static_cast<size_t>(size.count());
  std::vector<uint64_t> sum(
      static_cast<size_t>((size.count() * ranks.world() + kWord - 1) / kWord));
  std::memcpy(reinterpret_cast<std::byte*>(sum.data()) +
                  count * static_cast<size_t>(ranks.rank()),
              mine, count);
  ThreadLane lane("between ranks");
  CASTOR_RETURN_IF_ERROR(internal::SumOverRanks(ranks, lane, sum, "trainer"));
  std::memcpy(all, sum.data(), count * static_cast<size_t>(ranks.world()));
  return OkStatus();
}

Result<Communicator*> RankGroup::MakeEngine(Bytes buffer) {
  CASTOR_ASSIGN_OR_RETURN(engine_, Make(buffer));
  return engine_.get();
}

void RankGroup::Abort(const Status& reason) {
  trainer().Abort(reason);
  if (engine_ != nullptr) engine_->Abort(reason);
}

}  // namespace castor::gpt
