// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/params/lease_copies.h"

#include <utility>

#include "offload/device.h"

namespace castor::internal {

LeaseCopies::LeaseCopies(RankPools* pools)
    : pools_(pools), lane_(pools->device().MakeLane("poison of leases")) {}

LeaseCopies::~LeaseCopies() { lane_->Drain().IgnoreError(); }

Result<LeaseCopies::Copy*> LeaseCopies::Make(ParamId param,
                                             const std::byte* from, Bytes size,
                                             Lane& lane) {
  if (free_.size() <= param.index()) free_.resize(param.index() + 1);
  std::deque<Copy*>& free = free_[param.index()];
  if (free.empty()) {
    CASTOR_ASSIGN_OR_RETURN(Slab slab, pools_->MakeDeviceSlab(size));
    copies_.push_back(
        std::make_unique<Copy>(Copy{param, std::move(slab), Event()}));
    free.push_back(copies_.back().get());
  }
  Copy* const copy = free.front();
  free.pop_front();
  lane.Wait(copy->ready);
  pools_->device().Copy(lane, copy->slab.data(), from, size,
                        CopyKind::kWithinDevice);
  return copy;
}

void LeaseCopies::TakeBack(Copy* copy, std::span<Lane* const> lanes) {
  for (Lane* const lane : lanes) lane_->Wait(lane->Record());
  pools_->device().Fill(*lane_, copy->slab.data(), copy->slab.size(),
                        std::byte{0xFF});
  copy->ready = lane_->Record();
  free_[copy->param.index()].push_back(copy);
}

}  // namespace castor::internal
