// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_LEASE_ARENA_H_
#define CASTOR_OFFLOAD_MEMORY_LEASE_ARENA_H_

// Leases of variable size from one fixed range of device memory: first fit,
// each freed range remembered with the event after which its bytes may be
// reused, so that neither call blocks. Few leases live at a time, so lists
// serve. Owner thread only. Part of the pools (tier_pool.h).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/lanes/event.h"

namespace castor {

class LeaseArena {
 public:
  LeaseArena() = default;  // nothing to lend
  LeaseArena(std::byte* data, Bytes size) : data_(data), size_(size) {}

  struct Lease {
    int32_t id = -1;
    std::byte* data = nullptr;
    Event free_after;  // its previous users' last events
  };

  // TierFull, with what is on lease and the largest gap, when no gap of `size`
  // is left. Sizes are rounded up to 512 bytes; InvalidArgument below zero.
  Result<Lease> Borrow(Bytes size);
  // REQUIRES: `id` is on lease; `free_after` is done no sooner than the lease's
  // own free_after.
  void Return(int32_t id, Event free_after);

  // What `id` takes. REQUIRES: it is on lease.
  Bytes SizeOf(int32_t id) const;
  std::byte* DataOf(int32_t id) const;
  Bytes in_use() const { return in_use_; }
  size_t leases() const { return held_.size(); }

 private:
  struct Range {
    int32_t id;
    Bytes begin;
    Bytes end;
    Event free_after;
  };

  const Range& Held(int32_t id) const;

  std::byte* data_ = nullptr;
  Bytes size_;
  Bytes in_use_;
  int32_t next_id_ = 0;
  std::vector<Range> held_;   // by begin
  std::vector<Range> freed_;  // whose events may not be done; never on lease
                              // as a whole, so there are few
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_LEASE_ARENA_H_
