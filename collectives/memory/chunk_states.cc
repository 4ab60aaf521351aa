// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/chunk_states.h"

#include <cstddef>

#include "placement/run_event.h"

namespace castor::internal {

ChunkStates StatesOf(const ChunkLayout& layout, const Sharding& sharding,
                     ChunkId chunk) {
  const GroupInfo& group =
      layout.groups()[static_cast<size_t>(layout.chunk(chunk).group)];
  ChunkStates states;
  for (size_t k = 0; k < kStateKinds; ++k) {
    const StateKind state = static_cast<StateKind>(k);
    if (!sharding.exists(state, group)) continue;
    const ShardRange kept = sharding.kept(state, layout, chunk);
    const Bytes bytes =
        BytesOf(kept.end - kept.begin, sharding.dtype(state, group));
    states.device_bytes[k] = RoundUp(bytes, kDeviceAlign);
    states.host_bytes[k] = RoundUp(bytes, kHostAlign);
  }
  const auto on_device = [&states](StateKind state) {
    return states.device_bytes[static_cast<size_t>(state)];
  };
  const Bytes params = on_device(StateKind::kParam);
  const Bytes grads = on_device(StateKind::kGrad);
  states.moved_none_on_device = params * 2 + grads;
  if (sharding.refreshes()) states.moved_none_on_device += params;
  if (group.trainable) {
    const bool masters = on_device(StateKind::kMaster) > Bytes(0);
    const Bytes own = params / sharding.refreshed_ranks();
    states.moved_params_on_device = own * (masters ? 1 : 2) + grads;
  }
  return states;
}

double FetchCost(Tier home) { return 1 + static_cast<double>(TierIndex(home)); }

}  // namespace castor::internal
