// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/dry/dry_communicator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"

namespace castor {
namespace {

int64_t RingNs(const std::optional<RingModel>& ring, Bytes bytes, int ranks) {
  if (!ring) return 0;
  return std::llround(RingSeconds(*ring, 1, bytes, ranks) * 1e9);
}

class DryCommunicator final : public Communicator {
 public:
  explicit DryCommunicator(const DryCommunicatorOptions& options)
      : options_(options) {
    CASTOR_CHECK(options.rank >= 0 && options.rank < options.world);
    CASTOR_CHECK(options.executor != nullptr && options.timer != nullptr &&
                 options.meetings != nullptr);
    options_.meetings->own_ns.clear();
  }

  int rank() const override { return options_.rank; }
  int world() const override { return options_.world; }

  void AllGather(Lane& lane, const void*, void*, Elements shard_elements,
                 DType dtype, const CollectiveTag& tag) override {
    // Behind a reduction, slices are gathered into what a rank keeps.
    const bool joins = tag.purpose == "grad";
    Exchange(lane, options_.all_gather, BytesOf(shard_elements, dtype), tag,
             joins ? &StepTraffic::reduce_scatter : &StepTraffic::all_gather,
             joins ? &StepTraffic::reduce_scatter_steps
                   : &StepTraffic::all_gather_steps);
  }
  void ReduceScatter(Lane& lane, const void*, void*, Elements shard_elements,
                     DType dtype, const CollectiveTag& tag) override {
    Exchange(lane, options_.reduce_scatter, BytesOf(shard_elements, dtype), tag,
             &StepTraffic::reduce_scatter, &StepTraffic::reduce_scatter_steps);
  }
  void AllReduce(Lane& lane, void* data, Elements elements, DType dtype,
                 ReduceOp op, const CollectiveTag&) override {
    const auto world = static_cast<uint64_t>(options_.world);
    if (op == ReduceOp::kSum) {
      // What ranks of a training add up: others say the same.
      CASTOR_CHECK(dtype == DType::kU64);
      lane.Run([world, words = static_cast<uint64_t*>(data),
                count = elements.count()] {
        for (int64_t i = 0; i < count; ++i) words[i] *= world;
        return OkStatus();
      });
    }
    // All words go out to be added, and a slice's sums to everybody.
    const int64_t words = elements.count();
    const int64_t slice = words * (options_.rank + 1) / options_.world -
                          words * options_.rank / options_.world;
    const Bytes sent =
        BytesOf(Elements(words - slice + slice * (options_.world - 1)), dtype);
    Count(sent);
    const Bytes bytes = BytesOf(elements, dtype);
    if (options_.traffic != nullptr) {
      StepTraffic& counted = options_.traffic->Of(ChunkId());
      counted.agreed += bytes;
      counted.agreement += sent;
    }
    Meet(lane, RingNs(options_.reduce_scatter, bytes, options_.world) +
                   RingNs(options_.all_gather, bytes, options_.world));
  }
  void Broadcast(Lane& lane, void*, Bytes, int, const CollectiveTag&) override {
    Meet(lane, 0);
  }
  void Barrier(Lane& lane, const CollectiveTag&) override { Meet(lane, 0); }

  void Abort(Status reason) override {
    if (health_.ok()) health_ = std::move(reason);
  }
  Status Health() const override { return health_; }
  Bytes buffer_bytes() const override { return options_.buffers; }
  CommunicatorStats stats() const override { return stats_; }

 private:
  void Exchange(Lane& lane, const std::optional<RingModel>& ring, Bytes shard,
                const CollectiveTag& tag, LinkTraffic StepTraffic::*sent,
                int64_t StepTraffic::*steps) {
    const int ranks = tag.scope.size(options_.world);
    Count(shard * (ranks - 1));
    if (options_.traffic != nullptr) {
      StepTraffic& counted = options_.traffic->Of(tag.chunk);
      counted.*sent += {shard * (ranks - 1), 1};
      counted.*steps += ranks - 1;
    }
    Meet(lane, RingNs(ring, shard * ranks, ranks));
  }
  void Count(Bytes sent) {
    ++stats_.operations;
    stats_.bytes_sent += sent;
    stats_.bytes_received += sent;
  }

  void Meet(Lane& lane, int64_t ns) {
    internal::Meetings& meetings = *options_.meetings;
    const size_t meeting = meetings.own_ns.size();
    meetings.own_ns.push_back(0);
    lane.RunAsync([this, meeting, ns](EventSource source) {
      End(meeting, ns, std::move(source));
    });
  }
  void End(size_t meeting, int64_t ns, EventSource source) {
    internal::Meetings& meetings = *options_.meetings;
    const int64_t now_ns = options_.timer->NowNs();
    int64_t end_ns = meetings.own_ns[meeting] = now_ns;
    if (meeting < meetings.other_ns.size()) {
      end_ns = std::max(end_ns, meetings.other_ns[meeting]);
    }
    if (ns > 0) {
      // What ranks exchange goes one after the other.
      end_ns = ranks_free_ns_ = std::max(end_ns, ranks_free_ns_) + ns;
    }
    const auto ends = [this, ns, source = std::move(source)] {
      if (options_.busy_ns != nullptr) *options_.busy_ns += ns;
      source.Complete();
    };
    if (end_ns > now_ns) {
      options_.timer->At(end_ns, ends);
    } else if (options_.world > 1 && !meetings.comes_last) {
      // Others come when this rank has done what it can: its calls come first.
      options_.executor->Post(ends);
    } else {
      ends();
    }
  }

  const DryCommunicatorOptions options_;
  CommunicatorStats stats_;
  Status health_;
  int64_t ranks_free_ns_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> MakeDryCommunicator(
    const DryCommunicatorOptions& options) {
  return std::make_unique<DryCommunicator>(options);
}

}  // namespace castor
