// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_STORE_EXTENT_TABLE_H_
#define CASTOR_OFFLOAD_NVME_STORE_EXTENT_TABLE_H_

// What is known of a store's content. An extent is the range of one write; the
// table remembers a checksum of each of its pieces, which are what is between
// multiples of a unit. A write forgets every extent that it overlaps unless it
// is the same range, in which case it is written anew.
//
//   offset 0      8 Ki    16 Ki          32 Ki
//          | extent | extent |    none   | extent |
//
// A read covers one extent or several neighbouring ones, whole. Pieces are
// checked one by one, as they come, by whoever has the time. Transfers of
// overlapping ranges are the caller's to order; the table refuses a transfer
// whose range is in use by a write, or, for a write, by anything. Rewriting the
// same extents allocates no more of the table. Thread-safe. Part of the store
// (nvme_store.h).

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

struct ExtentPiece {
  Bytes offset;
  Bytes size;
};

class ExtentTable {
 public:
  // REQUIRES: unit > 0.
  explicit ExtentTable(Bytes unit);

  // Claims the range for a write. FailedPrecondition where a transfer in flight
  // uses part of it. REQUIRES: size > 0.
  Status BeginWrite(Bytes offset, Bytes size);
  // The checksum of the piece at `offset` of a claimed write.
  void SetChecksum(Bytes offset, uint64_t checksum);
  // The write that began at `offset` is over. `written`: every piece is there
  // and has its checksum; else nobody knows what is there.
  void EndWrite(Bytes offset, bool written);

  // Claims the range for a read. DataLoss where no extent was written or its
  // last write failed; InvalidArgument where the range covers part of an extent
  // only; FailedPrecondition where it is being written. REQUIRES: size > 0.
  Status BeginRead(Bytes offset, Bytes size);
  // Compares a piece that a claimed read brought with what was written:
  // DataLoss where it differs. Takes as long as the checksum takes.
  Status Verify(Bytes offset, std::span<const std::byte> piece) const;
  // Gives the claim of BeginRead back.
  void EndRead(Bytes offset, Bytes size);

  // The pieces of a claimed range, in order.
  std::vector<ExtentPiece> Pieces(Bytes offset, Bytes size) const;

 private:
  enum class State { kWriting, kWritten, kLost };
  struct Extent {
    Bytes size;
    std::vector<uint64_t> checksums;  // by piece; none until the first is set
    State state = State::kWriting;
    int64_t readers = 0;
  };
  using Extents = std::map<Bytes, Extent>;  // by offset; disjoint

  // Of the extent at `start`, the piece that begins at `offset`.
  size_t PieceIndex(Bytes start, Bytes offset) const;
  // The first extent that ends after `offset`.
  Extents::iterator FirstAfter(Bytes offset);
  // The one that holds `offset`. REQUIRES: there is one.
  Extents::const_iterator Holding(Bytes offset) const;

  const Bytes unit_;
  mutable std::mutex mutex_;
  Extents extents_;  // guarded by mutex_
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_STORE_EXTENT_TABLE_H_
