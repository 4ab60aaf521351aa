// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_NVME_EXTENT_TABLE_H_
#define CASTOR_OFFLOAD_NVME_EXTENT_TABLE_H_

// What is known of a file's content. An extent is the range of one write; the
// table remembers its checksum. A write forgets every extent that it overlaps
// unless it is the same range, in which case it is written anew.
//
//   offset 0      8 Ki    16 Ki          32 Ki
//          | extent | extent |    none   | extent |
//
// A read covers one extent or several neighbouring ones, whole: nothing less
// can be verified. Transfers of overlapping ranges are the caller's to order;
// the table refuses a transfer whose range is in use by a write, or, for a
// write, by anything. Rewriting the same extents allocates nothing.
// Thread-safe.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {

// XXH3, 64 bits.
uint64_t Checksum(std::span<const std::byte> data);

class ExtentTable {
 public:
  // Claims the range for a write. FailedPrecondition where a transfer in flight
  // uses part of it. REQUIRES: size > 0.
  Status BeginWrite(Bytes offset, Bytes size);
  // The write that began at `offset` is over. No checksum: it failed, and
  // nobody knows what is there.
  void EndWrite(Bytes offset, std::optional<uint64_t> checksum);

  // Claims the range for a read. DataLoss where no extent was written or its
  // last write failed; InvalidArgument where the range covers part of an extent
  // only; FailedPrecondition where it is being written. REQUIRES: size > 0.
  Status BeginRead(Bytes offset, Bytes size);
  // Compares what a claimed read brought with what was written: DataLoss on the
  // first extent that differs. Takes as long as the checksums take.
  Status Verify(Bytes offset, std::span<const std::byte> data) const;
  // Gives the claim of BeginRead back.
  void EndRead(Bytes offset, Bytes size);

 private:
  enum class State { kWriting, kWritten, kLost };
  struct Extent {
    Bytes size;
    uint64_t checksum = 0;
    State state = State::kWriting;
    int64_t readers = 0;
  };
  using Extents = std::map<Bytes, Extent>;  // by offset; disjoint

  // The first extent that ends after `offset`.
  Extents::iterator FirstAfter(Bytes offset);

  mutable std::mutex mutex_;
  Extents extents_;  // guarded by mutex_
};

}  // namespace castor

#endif  // CASTOR_OFFLOAD_NVME_EXTENT_TABLE_H_
