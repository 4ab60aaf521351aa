// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_HOMES_HOME_POLICY_H_
#define CASTOR_PLACEMENT_HOMES_HOME_POLICY_H_

// Which tier is home to each state of each chunk. Homes are fixed for a run.
// The device takes what saves most link bytes per step, the host takes states
// in order of bytes moved per step, or of the time that measured drives take
// for them, NVMe takes the rest; the chunks of one tier
// are interleaved evenly with those of another, so that both links stay busy.
// Whether states fit at all never turns on that: more bytes on a tier never
// make fail what fitted. The same input gives the same homes on every rank.
// Pure, thread-safe. Part of the static policy (static_policy.h).

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"

namespace castor {

// What one rank keeps of one chunk. A state with zero bytes does not exist.
struct ChunkStates {
  // Bytes of a slot for the state, by StateKind: on the device, and on host or
  // NVMe (rounded up to 4 KiB there).
  std::array<Bytes, kStateKinds> device_bytes;
  std::array<Bytes, kStateKinds> host_bytes;
  // Bytes that cross to or from the device per step when only the parameters'
  // home is on the device, and when nothing is: all states on the device cost
  // none.
  Bytes moved_params_on_device;
  Bytes moved_none_on_device;
};

using ChunkHomes = std::array<Tier, kStateKinds>;  // by StateKind

// Bytes left for homes on each tier.
struct HomeRoom {
  Bytes device;
  Bytes host;
  std::optional<Bytes> nvme;  // empty: there is no NVMe tier
};

struct HomeProblem : HomeRoom {
  std::vector<ChunkStates> chunks;
  // How fast that is, where it was measured: then the host takes first what
  // costs the drives most seconds of a step per byte of host memory. A drive
  // that writes slowly would rather keep what is never written. Where either is
  // empty, states are taken in the order of StateKind.
  std::optional<LinkModel> nvme_read = {};
  std::optional<LinkModel> nvme_write = {};
  StateNames names = {};  // for messages
};

// By ChunkId. Infeasible, with the bytes missing and on which tier, when the
// states do not fit.
Result<std::vector<ChunkHomes>> AssignHomes(const HomeProblem& problem);

// Tells of any room whether AssignHomes finds homes for these chunks there. To
// make it takes as long as to sort them, and to ask it often takes little.
std::function<bool(const HomeRoom&)> HomesFit(
    std::span<const ChunkStates> chunks);

// Bytes of slots that `homes` takes on each tier, by TierIndex.
std::array<Bytes, 3> HomeBytes(std::span<const ChunkStates> chunks,
                               std::span<const ChunkHomes> homes);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_HOMES_HOME_POLICY_H_
