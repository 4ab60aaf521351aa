// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shards/shard_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chunk/base/check.h"
#include "offload/shards/queued_work.h"

namespace castor {
namespace {

bool Over(const Event& event) { return event.done() && event.status().ok(); }

Event Joined(const std::vector<Event>& events, const Event& last) {
  std::vector<Event> waiting;
  for (const Event& event : events) {
    if (!Over(event)) waiting.push_back(event);
  }
  if (waiting.empty()) return last;
  waiting.push_back(last);
  return AllOf(waiting);
}

}  // namespace

ShardStore::ShardStore(const ShardStoreOptions& options)
    : options_(options),
      failures_(options.on_failure),
      staging_(std::make_unique<StagingRing>(
          &options.pools->pool(Tier::kHost), options.staging_class,
          options.staging_slots - options.work_slots, options.fetch_slots)) {
  const Lane::OnFailure note = [failures = failures_](const Status& status) {
    failures.Add(status);
  };
  const auto name = [&](const char* what) {
    return fmt::format("rank {} {}", options.rank, what);
  };
  Device& device = options.pools->device();
  to_device_ = device.MakeLane(name("to device"), note);
  from_device_ = device.MakeLane(name("from device"), note);
  back_to_device_ = device.MakeLane(name("back to device"), note);
  ahead_ = device.MakeLane(name("to device, ahead"), note);
  work_ = std::make_unique<WorkQueue>();
  work_->from_device = device.MakeLane(name("work from device"), note);
  work_->back_to_device = device.MakeLane(name("work to device"), note);
  work_->ups.AddTurn(0);
  if (!work_->back_to_device->runs_on_host()) work_->ups.AddTurn(1);
  for (int64_t i = 0; i < options.work_slots; ++i) {
    Result<Slot> slot = options.pools->pool(Tier::kHost)
                            .Take(options.staging_class, SlotHold::kSettled);
    CASTOR_CHECK(slot.ok());
    work_->slots.push_back(*std::move(slot));
    work_->slots.back().free_after.OnDone(
        [picks = work_->picks, data = work_->slots.back().data](
            const Status&) mutable { picks.AddTurn(data); });
  }
}

ShardStore::~ShardStore() {
  CASTOR_CHECK_EQ(open_windows_, 0);
  Close().IgnoreError();  // on_failure has had it
}

Status ShardStore::AddShard(ChunkId chunk, StateKind state, Tier home,
                            int32_t slot_class, Bytes bytes, Bytes piece,
                            Bytes counted) {
  if (piece == Bytes(0)) piece = bytes;
  CASTOR_CHECK(piece >= bytes || piece % KiB(4) == Bytes(0));
  if (shards_.size() <= chunk.index()) shards_.resize(chunk.index() + 1);
  auto& shard = shards_[chunk.index()][static_cast<size_t>(state)];
  CASTOR_CHECK(shard == nullptr);
  CASTOR_ASSIGN_OR_RETURN(Slot slot, options_.pools->pool(home).Take(
                                         slot_class, SlotHold::kSettled));
  CASTOR_CHECK_LE(bytes, slot.size);
  shard = std::make_unique<Shard>();
  shard->home = home;
  shard->bytes = bytes;
  shard->counted = counted;
  // Its first user need not wait for those that the slot had before.
  for (Bytes at; at < bytes; at += piece) {
    shard->pieces.push_back(
        {{at, std::min(at + piece, bytes)}, slot.free_after, {}});
  }
  shard->slot = std::move(slot);
  return OkStatus();
}

ShardStore::Shard& ShardStore::At(ChunkId chunk, StateKind state) {
  CASTOR_CHECK(has(chunk, state));
  return *shards_[chunk.index()][static_cast<size_t>(state)];
}

const ShardStore::Shard& ShardStore::At(ChunkId chunk, StateKind state) const {
  return const_cast<ShardStore*>(this)->At(chunk, state);
}

bool ShardStore::has(ChunkId chunk, StateKind state) const {
  return chunk.index() < shards_.size() &&
         shards_[chunk.index()][static_cast<size_t>(state)] != nullptr;
}

Tier ShardStore::home(ChunkId chunk, StateKind state) const {
  return At(chunk, state).home;
}

Bytes ShardStore::bytes(ChunkId chunk, StateKind state) const {
  return At(chunk, state).bytes;
}

Bytes ShardStore::piece(ChunkId chunk, StateKind state) const {
  return At(chunk, state).pieces.front().range.size();
}

int32_t ShardStore::slot_class(ChunkId chunk, StateKind state) const {
  CASTOR_CHECK(At(chunk, state).slot.valid());
  return At(chunk, state).slot.slot_class;
}

std::vector<ShardStore::ShardId> ShardStore::shards() const {
  std::vector<ShardId> ids;
  for (size_t c = 0; c < shards_.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      if (shards_[c][k] == nullptr) continue;
      ids.push_back(
          {ChunkId(static_cast<int32_t>(c)), static_cast<StateKind>(k)});
    }
  }
  return ids;
}

std::byte* ShardStore::device_data(ChunkId chunk, StateKind state) const {
  const Shard& shard = At(chunk, state);
  CASTOR_CHECK(shard.home == Tier::kDevice);
  return shard.slot.data;
}

Event ShardStore::written(ChunkId chunk, StateKind state) {
  Shard& shard = At(chunk, state);
  if (!OthersWait()) {
    for (Piece& piece : shard.pieces) piece.written.Settle();
    return Written(shard);
  }
  return InTurn(chunk, state, 0, StagingUse::kWork,
                [&shard](std::span<Slot>) { return Written(shard); });
}

void ShardStore::AddReader(ChunkId chunk, StateKind state, Event reader) {
  Shard& shard = At(chunk, state);
  if (!OthersWait()) {
    for (Piece& piece : shard.pieces) AddReader(piece, reader);
    return;
  }
  InTurn(chunk, state, 0, StagingUse::kWork, [&shard, reader](std::span<Slot>) {
    for (Piece& piece : shard.pieces) AddReader(piece, reader);
    return Event();
  });
}

Event ShardStore::WriteReady(ChunkId chunk, StateKind state) {
  const Shard& shard = At(chunk, state);
  if (!OthersWait()) return WriteReady(shard);
  return InTurn(chunk, state, 0, StagingUse::kWork,
                [&shard](std::span<Slot>) { return WriteReady(shard); });
}

void ShardStore::SetWritten(ChunkId chunk, StateKind state, Event written) {
  Shard& shard = At(chunk, state);
  if (!OthersWait()) return SetWritten(shard, written);
  InTurn(chunk, state, 0, StagingUse::kWork,
         [&shard, written](std::span<Slot>) {
           SetWritten(shard, written);
           return Event();
         });
}

ShardStore::Piece& ShardStore::PieceAt(Shard& shard, ByteRange range) {
  const Bytes size = shard.pieces.front().range.size();
  const size_t at = std::min(static_cast<size_t>(range.begin / size),
                             shard.pieces.size() - 1);
  Piece& piece = shard.pieces[at];
  CASTOR_CHECK_LE(range.end, piece.range.end);
  return piece;
}

std::vector<ShardStore::Part> ShardStore::PartsOf(Shard& shard,
                                                  ByteRange range) {
  CASTOR_CHECK_LE(range.end, shard.bytes);
  std::vector<Part> parts;
  for (Piece& piece : shard.pieces) {
    const ByteRange part{std::max(range.begin, piece.range.begin),
                         std::min(range.end, piece.range.end)};
    if (part.begin < part.end) parts.push_back({&piece, part});
  }
  return parts;
}

void ShardStore::AddReader(Piece& piece, Event reader) {
  if (!piece.readers.empty()) {
    std::erase_if(piece.readers, Over);
  }
  if (!Over(reader)) piece.readers.push_back(std::move(reader));
}

Event ShardStore::Written(const Shard& shard) {
  std::vector<Event> before;
  for (const Piece& piece : shard.pieces) {
    if (&piece == &shard.pieces.back()) return Joined(before, piece.written);
    if (!Over(piece.written)) before.push_back(piece.written);
  }
  return Event();
}

Event ShardStore::WriteReady(const Piece& piece) {
  return Joined(piece.readers, piece.written);
}

Event ShardStore::WriteReady(const Shard& shard) {
  std::vector<Event> readers;
  for (const Piece& piece : shard.pieces) {
    readers.insert(readers.end(), piece.readers.begin(), piece.readers.end());
  }
  return Joined(readers, Written(shard));
}

void ShardStore::SetWritten(Shard& shard, Piece& piece, Event written) {
  piece.written = std::move(written);
  piece.readers.clear();
  shard.filled = true;
}

void ShardStore::SetWritten(Shard& shard, const Event& written) {
  for (Piece& piece : shard.pieces) SetWritten(shard, piece, written);
}

void ShardStore::BeginStep(int32_t step) {
  step_ = step;
  if (options_.pools->nvme() != nullptr)
    options_.pools->nvme()->BeginStep(step);
}

Status ShardStore::Drain() {
  if (staging_ == nullptr) return failures_.Summary();
  // Their own failures are known to failures_.
  for (const auto& lane : {ahead_.get(), to_device_.get(),
                           back_to_device_.get(), from_device_.get()}) {
    lane->Drain().IgnoreError();
  }
  // A shard that moved meanwhile knows nothing of its readers any more.
  for (const Event& work : std::exchange(work_under_way_, {})) {
    work.Wait().IgnoreError();
  }
  int64_t moves = 0;
  for (const ShardId id : shards()) {
    const Shard& shard = At(id.chunk, id.state);
    WriteReady(shard).Wait().IgnoreError();
    moves += shard.move != nullptr;
  }
  staging_->AllFree().Wait().IgnoreError();
  CASTOR_RETURN_IF_ERROR(failures_.Summary());
  if (staging_->waiting() > 0 || moves > 0) {
    return FailedPrecondition(fmt::format(
        "{} requests and {} moves still wait for slots: close the {} windows "
        "that are open and give back what else is held first",
        staging_->waiting(), moves, open_windows_));
  }
  return OkStatus();
}

Status ShardStore::Close() {
  if (staging_ == nullptr) return failures_.Summary();
  if (open_windows_ > 0) {
    return FailedPrecondition(
        fmt::format("{} windows are still open: close them before the store",
                    open_windows_));
  }
  const Status drained = Drain();
  for (const ShardId id : shards()) {
    Shard& shard = At(id.chunk, id.state);
    // Whoever it waits for would grant it a slot when the store is gone.
    CASTOR_CHECK(shard.move == nullptr);
    if (shard.slot.valid()) {
      options_.pools->pool(shard.home).Give(shard.slot, Event());
    }
  }
  for (const Slot& slot : work_->slots) {
    options_.pools->pool(Tier::kHost).Give(slot, Event());
  }
  work_->slots.clear();
  shards_.clear();
  staging_.reset();
  return drained;
}

Event ShardStore::InTurn(ChunkId chunk, StateKind state, int64_t count,
                         StagingUse use, Op op) {
  CASTOR_CHECK(staging_->CheckServable(count, use).ok());
  Shard& shard = At(chunk, state);
  ++shard.holds;
  if (staging_->GrantsNow(count, use)) {
    Event end;
    const Status asked = staging_->Take(
        count, use, [&](std::span<Slot> slots) { end = op(slots); });
    CASTOR_CHECK(asked.ok());
    ReleaseHold(shard);
    return end;
  }
  const EventSource late;
  const Status asked = staging_->Take(
      count, use,
      [this, &shard, op = std::move(op), late](std::span<Slot> slots) {
        op(slots).OnDone(
            [late](const Status& status) { late.Complete(status); });
        ReleaseHold(shard);
      });
  CASTOR_CHECK(asked.ok());
  return late.event();
}

void ShardStore::ReleaseHold(Shard& shard) {
  CASTOR_CHECK_GT(shard.holds, 0);
  if (--shard.holds > 0 || shard.move == nullptr) return;
  AdvanceMove(std::shared_ptr<PendingMove>(shard.move));
}

}  // namespace castor
