// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_STRIPE_MAP_H_
#define CASTOR_OFFLOAD_NVME_STORE_STRIPE_MAP_H_

// Several drives as one range of bytes, in turns of one unit, so that an extent
// of a few units is moved by all of them at once. Drives of unequal size: when
// the smallest is full the others go on without it (as Linux's raid0 does), so
// every byte of every drive is used.
//
//   drive 0   | 0 | 3 | 5 |         the number is that of the unit in the range
//   drive 1   | 1 | 4 | 6 | 7 |
//   drive 2   | 2 |
//
// Each drive's part of a range that is read in order lies in order on it.
// Immutable. Part of the store (nvme_store.h).

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

struct StripePlace {
  size_t drive = 0;
  Bytes offset;  // on the drive
};

class StripeMap {
 public:
  // REQUIRES: `unit` and all `sizes`, of which there is one at least, are
  // positive; if there are several, they are multiples of `unit`.
  StripeMap(std::vector<Bytes> sizes, Bytes unit);

  Bytes size() const { return size_; }
  Bytes unit() const { return unit_; }

  // Where the byte at `offset` of the range is. What follows, up to the next
  // multiple of the unit, follows there too. REQUIRES: 0 <= offset < size().
  StripePlace Place(Bytes offset) const;

 private:
  // Where the same drives take turns.
  struct Zone {
    Bytes begin;        // in the range
    Bytes drive_begin;  // on each of the drives
    std::vector<size_t> drives;
  };

  Bytes unit_;
  Bytes size_;
  std::vector<Zone> zones_;
};

// How much of each drive to use for `need` bytes: as equal as their limits let
// it be, in whole units if there are several drives (so their sum may exceed
// `need` by less than a unit), exactly `need` on a single one. 0 for a drive
// that is not needed. Infeasible, with both numbers, where they do not hold it.
// REQUIRES: need > 0, unit > 0, one drive at least; no limit is negative.
Result<std::vector<Bytes>> ShareOverDrives(
    Bytes need, std::span<const std::optional<Bytes>> limits, Bytes unit);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_STRIPE_MAP_H_
