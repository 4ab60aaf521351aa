// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_INTERNAL_EXCHANGE_H_
#define CASTOR_COLLECTIVES_MPI_INTERNAL_EXCHANGE_H_

// Part of the world of MPI (mpi_world.h).
//
// The data of one operation, as one rank sends and receives it.
//
// Every rank sends every other of the call's scope what that one needs, in
// pieces, a few at a time:
// of an all-gather its shard, straight into its place; of a reduction the
// other's slice, in segments that land in a scratch buffer and are added there
// in rank order, one set of segments while the next one comes; the result of an
// all-reduce's slice then goes to all.
//
//     chunk of rank 0   | a0 | a1 | a2 |        rank 1 receives a1, c1 and adds
//     chunk of rank 1   | b0 | b1 | b2 |        (a1 + b1) + c1
//     chunk of rank 2   | c0 | c1 | c2 |
//
// Data goes to a peer once that one has come with the same call, hence with
// memory to receive it, and receives that need no scratch wait before the peers
// are told. So whatever is sent is received, also by a rank that has given up:
// it learns how much had been sent to it, takes that, and cancels the rest.
// Only then is its memory its own again. One thread only.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "chunk/base/units.h"
#include "collectives/internal/collective_call.h"
#include "collectives/internal/data_movement.h"
#include "collectives/mpi/internal/control_message.h"
#include "collectives/mpi/internal/mpi_wire.h"
#include "collectives/rank_scope.h"

namespace castor::internal {

struct ExchangeSizes {
  Bytes most_at_once;  // of a transfer straight to its place
  Bytes segment;       // of one that goes through the scratch buffer
};

// What goes through a buffer of so many bytes at a time, with `most` in one
// transfer: whole cache lines, and so whole elements, and 4 KiB at least.
// REQUIRES: most >= 4 KiB.
Bytes SegmentOf(Bytes buffer, int world, Bytes most);

// What a scratch buffer takes: two sets of a segment from every other rank.
Bytes ScratchBytes(int world, Bytes segment);

class Exchange {
 public:
  // `wire` outlives it.
  Exchange(int64_t position, const CollectiveCall& call,
           const RankBuffers& buffers, const ExchangeSizes& sizes,
           MpiWire* wire);
  // REQUIRES: at rest, or abandoned.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Posts receives; before the peers are told of the call.
  void Begin();
  // `peer` has come with the same call.
  void PeerCame(int peer);

  // A buffer of ScratchBytes is wanted, and not there: once all have come, so
  // that it is given back in finite time.
  bool wants_scratch() const { return segments_ > 0 && scratch_ == nullptr; }
  void GiveScratch(std::byte* scratch);
  // Whether it is used no longer.
  bool through_with_scratch() const { return summed_ == segments_; }

  // Everything was sent and received, and sums are there.
  bool done() const;
  // Ends of pieces so far: a sign of life.
  int64_t ended_pieces() const { return ended_pieces_; }
  // Peers that owe something by now.
  std::vector<int> PeersWaitedFor() const;

  // From here on nothing new is sent.
  void GiveUp() { given_up_ = true; }
  bool given_up() const { return given_up_; }
  // How much was sent to `peer`.
  SentPieces SentTo(int peer) const;
  // Once given up: `peer` sends that much, and no more.
  void PeerSends(int peer, const SentPieces& sent);
  // Once given up: nothing is under way any more.
  bool at_rest() const;
  // Peers do not answer: receives that no send has met are cancelled, and what
  // else is under way is left to MPI.
  void Abandon();

 private:
  // One direction to or from one peer in one phase.
  struct Stream {
    std::byte* data = nullptr;  // null: through scratch
    int64_t bytes = 0;
    int64_t piece = 1;
    int64_t issued = 0;
    int64_t ended = 0;
    int64_t pieces() const { return (bytes + piece - 1) / piece; }
    int64_t piece_bytes(int64_t index) const;
    bool done() const { return ended == pieces(); }
  };

  size_t Index(int peer) const { return static_cast<size_t>(peer); }
  // The i-th rank that data is exchanged with, this one included.
  int Member(int i) const { return scope_.member(i, rank_, world_); }
  // What comes of another rank to be added, as it does of each.
  const Stream& AnyReduced() const {
    return in_[0][Index(Member(Member(0) == rank_ ? 1 : 0))];
  }
  void CopyOwn(std::byte* to, int64_t bytes) const;
  int64_t Tag(int phase) const;
  void PlanStreams();
  void Advance();
  void AdvanceSends(int phase, int peer);
  void AdvanceReceives(int phase, int peer);
  void ReceivePiece(int phase, int peer, std::byte* to);
  void ReceiveSegments();
  void AddUp();
  void AddSegment(int64_t index);
  std::byte* ScratchFor(int64_t segment, int peer) const;

  const int64_t position_;
  const CollectiveCall call_;
  const RankBuffers buffers_;
  const ExchangeSizes sizes_;
  MpiWire* const wire_;
  const int rank_;
  const int world_;
  const RankScope scope_;
  const int among_;  // ranks of the scope
  const bool reduces_;

  // By phase, then by rank; this rank's own are empty.
  std::array<std::vector<Stream>, kPhases> out_;
  std::array<std::vector<Stream>, kPhases> in_;
  std::vector<bool> came_;
  bool given_up_ = false;
  bool abandoned_ = false;
  int64_t ended_pieces_ = 0;

  // Of a reduction.
  std::byte* own_slice_ = nullptr;  // what this rank adds
  std::byte* result_ = nullptr;     // where the sum goes
  std::byte* scratch_ = nullptr;
  int64_t segments_ = 0;
  int64_t summed_ = 0;      // segments
  int landed_[2] = {0, 0};  // pieces, by set
  std::vector<const void*> parts_;

  // What comes after giving up and has no place: nobody reads it.
  std::vector<std::unique_ptr<std::byte[]>> discarded_;
};

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MPI_INTERNAL_EXCHANGE_H_
