// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/internal/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "offload/kernels/reduce.h"

namespace castor::internal {
namespace {

// Pieces under way between two ranks: enough to keep the link busy while one
// ends.
constexpr int64_t kWindow = 4;

std::byte* BytesAt(const void* data, int64_t offset) {
  // Sends read and receives write; a stream does one of them.
  return static_cast<std::byte*>(const_cast<void*>(data)) + offset;
}

int64_t ElementBytes(DType dtype) { return DTypeBits(dtype) / 8; }

}  // namespace

Bytes SegmentOf(Bytes buffer, int world, Bytes most) {
  constexpr Bytes kLeast = KiB(4);
  constexpr Bytes kLine = Bytes(64);
  CASTOR_CHECK_GE(most, kLeast);
  if (world == 1) return kLeast;
  const Bytes fair = buffer / (int64_t{2} * (world - 1));
  return std::max(kLeast, RoundDown(std::min(fair, most), kLine));
}

Bytes ScratchBytes(int world, Bytes segment) {
  return segment * int64_t{2} * (world - 1);
}

int64_t Exchange::Stream::piece_bytes(int64_t index) const {
  return std::min(piece, bytes - index * piece);
}

Exchange::Exchange(int64_t position, const CollectiveCall& call,
                   const RankBuffers& buffers, const ExchangeSizes& sizes,
                   MpiWire* wire)
    : position_(position),
      call_(call),
      buffers_(buffers),
      sizes_(sizes),
      wire_(wire),
      rank_(wire->rank()),
      world_(wire->world()),
      scope_(call.tag.scope),
      among_(scope_.size(world_)),
      reduces_(among_ > 1 && (call.kind == CollectiveKind::kReduceScatter ||
                              call.kind == CollectiveKind::kAllReduce)),
      came_(static_cast<size_t>(world_), false) {
  for (auto* streams : {&out_, &in_}) {
    for (auto& phase : *streams) phase.resize(static_cast<size_t>(world_));
  }
  if (among_ > 1) PlanStreams();
}

Exchange::~Exchange() {
  // Its owner may use the memory anew.
  CASTOR_CHECK(abandoned_ || at_rest());
  wire_->Forget(this);
}

void Exchange::PlanStreams() {
  const int64_t direct = sizes_.most_at_once.count();
  const int64_t segment = sizes_.segment.count();
  const int64_t counted = BytesOf(Elements(call_.count), call_.dtype).count();
  const auto slice = [&](int rank) {
    return call_.count * rank / world_ * ElementBytes(call_.dtype);
  };
  for (int i = 0; i < among_; ++i) {
    const int peer = Member(i);
    if (peer == rank_) continue;
    const size_t p = Index(peer);
    const int64_t place = scope_.place(peer, world_);
    switch (call_.kind) {
      case CollectiveKind::kAllGather:
        out_[0][p] = {BytesAt(buffers_.in, 0), counted, direct};
        in_[0][p] = {BytesAt(buffers_.out, counted * place), counted, direct};
        break;
      case CollectiveKind::kReduceScatter:
        out_[0][p] = {BytesAt(buffers_.in, counted * place), counted, segment};
        in_[0][p] = {nullptr, counted, segment};
        break;
      case CollectiveKind::kAllReduce: {
        const int64_t theirs = slice(peer + 1) - slice(peer);
        const int64_t mine = slice(rank_ + 1) - slice(rank_);
        std::byte* const their_slice = BytesAt(buffers_.out, slice(peer));
        out_[0][p] = {their_slice, theirs, segment};
        in_[0][p] = {nullptr, mine, segment};
        out_[1][p] = {BytesAt(buffers_.out, slice(rank_)), mine, direct};
        in_[1][p] = {their_slice, theirs, direct};
        break;
      }
      case CollectiveKind::kBroadcast:
        if (rank_ == call_.root) {
          out_[0][p] = {BytesAt(buffers_.in, 0), call_.count, direct};
        } else if (peer == call_.root) {
          in_[0][p] = {BytesAt(buffers_.out, 0), call_.count, direct};
        }
        break;
      case CollectiveKind::kBarrier:
        break;
    }
  }
  if (!reduces_) return;
  segments_ = AnyReduced().pieces();
  if (call_.kind == CollectiveKind::kReduceScatter) {
    own_slice_ = BytesAt(buffers_.in, counted * scope_.place(rank_, world_));
    result_ = BytesAt(buffers_.out, 0);
  } else {
    own_slice_ = result_ = BytesAt(buffers_.out, slice(rank_));
  }
}

int64_t Exchange::Tag(int phase) const {
  return (position_ * kPhases + phase) % wire_->tags();
}

void Exchange::Begin() {
  if (call_.kind == CollectiveKind::kAllGather) {
    const int64_t shard = BytesOf(Elements(call_.count), call_.dtype).count();
    CopyOwn(BytesAt(buffers_.out, shard * scope_.place(rank_, world_)), shard);
  }
  if (among_ > 1) return Advance();
  if (call_.kind == CollectiveKind::kReduceScatter) {
    CopyOwn(BytesAt(buffers_.out, 0),
            BytesOf(Elements(call_.count), call_.dtype).count());
  }
}

void Exchange::CopyOwn(std::byte* to, int64_t bytes) const {
  if (to == buffers_.in || bytes == 0) return;
  std::memcpy(to, buffers_.in, static_cast<size_t>(bytes));
}

void Exchange::PeerCame(int peer) {
  came_[Index(peer)] = true;
  Advance();
}

void Exchange::GiveScratch(std::byte* scratch) {
  CASTOR_CHECK(wants_scratch());
  scratch_ = scratch;
  Advance();
}

void Exchange::Advance() {
  if (given_up_) return;
  ReceiveSegments();
  // From the next rank on, so that ranks do not all send to one at once.
  for (int i = 1; i < world_; ++i) {
    const int peer = (rank_ + i) % world_;
    for (int phase = 0; phase < kPhases; ++phase) {
      AdvanceSends(phase, peer);
      AdvanceReceives(phase, peer);
    }
  }
}

void Exchange::AdvanceSends(int phase, int peer) {
  if (!came_[Index(peer)]) return;
  // Results go once they are there.
  if (phase == 1 && summed_ < segments_) return;
  Stream& out = out_[static_cast<size_t>(phase)][Index(peer)];
  while (out.issued < out.pieces() && out.issued - out.ended < kWindow) {
    const int64_t index = out.issued++;
    wire_->Send(this, peer, Tag(phase), out.data + index * out.piece,
                Bytes(out.piece_bytes(index)),
                [this, &out, phase, peer](MpiWire::Outcome) {
                  ++out.ended;
                  ++ended_pieces_;
                  if (!given_up_) {
                    AdvanceSends(phase, peer);
                    // A result comes to where this piece was sent from.
                    AdvanceReceives(1, peer);
                  }
                });
  }
}

void Exchange::AdvanceReceives(int phase, int peer) {
  Stream& in = in_[static_cast<size_t>(phase)][Index(peer)];
  if (in.data == nullptr) return;
  if (phase == 1 && !out_[0][Index(peer)].done()) return;
  while (in.issued < in.pieces() && in.issued - in.ended < kWindow) {
    ReceivePiece(phase, peer, in.data + in.issued * in.piece);
  }
}

void Exchange::ReceivePiece(int phase, int peer, std::byte* to) {
  Stream& in = in_[static_cast<size_t>(phase)][Index(peer)];
  const int64_t index = in.issued++;
  const bool lands = in.data == nullptr && !given_up_;
  wire_->Receive(
      this, peer, Tag(phase), index, to, Bytes(in.piece_bytes(index)),
      [this, &in, phase, peer, index, lands](MpiWire::Outcome outcome) {
        ++in.ended;
        ++ended_pieces_;
        if (given_up_ || outcome != MpiWire::Outcome::kMoved) return;
        if (lands) {
          ++landed_[index % 2];
          AddUp();
        } else {
          AdvanceReceives(phase, peer);
        }
      });
}

// A set is received into anew once it has been added up.
void Exchange::ReceiveSegments() {
  if (scratch_ == nullptr) return;
  for (int i = 1; i < world_; ++i) {
    const int peer = (rank_ + i) % world_;
    Stream& in = in_[0][Index(peer)];
    while (in.issued < in.pieces() && in.issued < summed_ + 2) {
      ReceivePiece(0, peer, ScratchFor(in.issued, peer));
    }
  }
}

void Exchange::AddUp() {
  const int64_t before = summed_;
  while (summed_ < segments_ && landed_[summed_ % 2] == among_ - 1) {
    AddSegment(summed_);
    landed_[summed_ % 2] = 0;
    ++summed_;
  }
  if (summed_ == before) return;
  if (summed_ == segments_) {
    Advance();
  } else {
    ReceiveSegments();
  }
}

void Exchange::AddSegment(int64_t index) {
  const Stream& any = AnyReduced();
  const int64_t offset = index * any.piece;
  const int64_t bytes = any.piece_bytes(index);
  const int64_t count = bytes / ElementBytes(call_.dtype);
  parts_.clear();
  for (int i = 0; i < among_; ++i) {
    const int peer = Member(i);
    parts_.push_back(peer == rank_ ? own_slice_ + offset
                                   : ScratchFor(index, peer));
  }
  if (call_.kind == CollectiveKind::kReduceScatter) {
    SumInOrder(parts_, call_.dtype, count, result_ + offset);
    return;
  }
  // The first rank's part becomes the sum: here, or in scratch.
  std::byte* const sum = rank_ == 0 ? result_ + offset : ScratchFor(index, 0);
  ReduceInto(sum, std::span(parts_).subspan(1), call_.dtype, call_.op, count);
  if (rank_ != 0) {
    std::memcpy(result_ + offset, sum, static_cast<size_t>(bytes));
  }
}

std::byte* Exchange::ScratchFor(int64_t segment, int peer) const {
  const int64_t slot = peer < rank_ ? peer : peer - 1;
  return scratch_ +
         (segment % 2 * (world_ - 1) + slot) * sizes_.segment.count();
}

bool Exchange::done() const {
  if (summed_ < segments_) return false;
  for (int phase = 0; phase < kPhases; ++phase) {
    const auto f = static_cast<size_t>(phase);
    for (size_t peer = 0; peer < came_.size(); ++peer) {
      if (!out_[f][peer].done() || !in_[f][peer].done()) return false;
    }
  }
  return true;
}

std::vector<int> Exchange::PeersWaitedFor() const {
  // Who sends what this rank has made room for, first phase first; a rank that
  // does not take what it is sent may wait for a third one itself.
  for (const auto* streams : {&in_[0], &in_[1], &out_[0], &out_[1]}) {
    std::vector<int> peers;
    for (int peer = 0; peer < world_; ++peer) {
      const Stream& stream = (*streams)[Index(peer)];
      if (stream.issued > stream.ended) peers.push_back(peer);
    }
    if (!peers.empty()) return peers;
  }
  return {};
}

SentPieces Exchange::SentTo(int peer) const {
  SentPieces sent{.position = position_};
  for (size_t f = 0; f < kPhases; ++f) {
    sent.pieces[f] = given_up_ ? out_[f][Index(peer)].issued : kAllPieces;
  }
  return sent;
}

void Exchange::PeerSends(int peer, const SentPieces& sent) {
  CASTOR_CHECK(given_up_);
  for (int phase = 0; phase < kPhases; ++phase) {
    const auto f = static_cast<size_t>(phase);
    Stream& in = in_[f][Index(peer)];
    const int64_t coming = std::min(sent.pieces[f], in.pieces());
    while (in.issued < coming) {
      auto& place = discarded_.emplace_back(
          new std::byte[static_cast<size_t>(in.piece_bytes(in.issued))]);
      ReceivePiece(phase, peer, place.get());
    }
    // Receives are met in order, so it is the last ones that wait in vain.
    wire_->CancelReceives(this, peer, Tag(phase), coming);
  }
}

bool Exchange::at_rest() const {
  for (const auto* streams : {&out_, &in_}) {
    for (const auto& phase : *streams) {
      for (const Stream& stream : phase) {
        if (stream.issued != stream.ended) return false;
      }
    }
  }
  return true;
}

void Exchange::Abandon() {
  abandoned_ = true;
  for (int peer = 0; peer < world_; ++peer) {
    for (int phase = 0; phase < kPhases; ++phase) {
      wire_->CancelReceives(this, peer, Tag(phase), 0);
    }
  }
  wire_->Forget(this);
}

}  // namespace castor::internal
