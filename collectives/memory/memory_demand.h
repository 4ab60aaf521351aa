// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MEMORY_MEMORY_DEMAND_H_
#define CASTOR_COLLECTIVES_MEMORY_MEMORY_DEMAND_H_

// The bytes that a rank's states and slots ask of its budgets, whether budgets
// suffice, and the smallest raises that would. Value; its functions are pure,
// thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/units.h"
#include "collectives/memory/budget_raises.h"
#include "placement/homes/home_policy.h"
#include "placement/run_event.h"

namespace castor::internal {

struct Budgets {
  Bytes device;  // the communicator's buffers taken off
  Bytes host;
  std::optional<Bytes> nvme = {};  // empty: there is no NVMe tier
  Bytes buffers = {};              // the communicator's, on the device
  int world = 1;

  // What the user gave.
  Bytes whole_device() const { return device + buffers; }
};

// By how much the user raises the device budget so that `device` grows by
// `raise`: the buffers may grow with the budget (ExchangeBufferFor).
Bytes WithBuffers(Bytes raise, const Budgets& budgets);

// One way to lay out the host: with NVMe or without, and how many slots it
// then has for bytes on their way, some for fetches alone.
struct HostScheme {
  bool nvme = false;
  int64_t staging_slots = 0;
  int64_t fetch_slots = 0;
};

// Windows open at one time while one chunk is updated: one per state that it
// has. Two where a gradient is added, which every chunk may have.
int64_t WindowsOfAnUpdate(std::span<const ChunkStates> chunks);

// Where any state is on NVMe, in order of preference. Staging for two updates:
// one piece's states are read while another's are updated and written; beside
// these two slots for fetches, which pass the updates: one piece is read while
// another is copied to the device. Then without the latter, and for one update.
// Before all of them come more updates at one time, which keep a drive busy
// while the processor is: for as much as a sixth of the host budget.
std::vector<HostScheme> NvmeSchemes(int64_t windows, Bytes slot, Bytes host);
// Without NVMe: a gradient to add, and parameters whose home is the device.
inline constexpr int64_t kStagingWithoutNvme = 3;

// In order of preference: NVMe only when needed. `mixed`: any state of a chunk
// may be on the device while others are not, and each has a window then.
std::vector<HostScheme> HostSchemes(const Budgets& budgets, int64_t windows,
                                    Bytes slot, bool mixed = false);

struct MemoryDemand {
  std::vector<ChunkStates> chunks;  // by ChunkId
  Bytes serving;        // of the device, for gathered slots and leases
  Bytes all_on_device;  // with every state there, slots and leases included
  Bytes staging_slot;   // of one staging slot
  int64_t windows = 2;  // of one update
  // Bytes of homes that rules have placed, by TierIndex; `chunks` lacks them.
  std::array<Bytes, 3> ruled;

  bool mixed() const { return ruled != std::array<Bytes, 3>(); }
  // Everything is on the device, and the budget holds it.
  bool FitsOnDevice(Bytes device) const {
    return ruled[1] + ruled[2] == Bytes(0) && all_on_device <= device;
  }

  // What is left for homes when `ahead` bytes of the device serve fetching
  // ahead; empty when not even the rest fits.
  std::optional<HomeRoom> RoomForHomes(const Budgets& budgets,
                                       const HostScheme& scheme,
                                       Bytes ahead) const;

  // Whether there is a place for everything. More is never less: every way to
  // fit is open to a larger budget as well.
  bool FitsInto(const Budgets& budgets) const;

  // REQUIRES: it does not fit.
  BudgetRaises SmallestRaises(const Budgets& budgets) const;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MEMORY_MEMORY_DEMAND_H_
