// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/fetch_forecast.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "chunk/base/ids.h"
#include "placement/policy/compute_spread.h"
#include "placement/run_event.h"

namespace castor {
namespace {

// The last leg makes a chunk of shards; those before it bring this rank's.
constexpr size_t kGatherLeg = kFetchLegs - 1;

class FetchReplay {
 public:
  FetchReplay(const PlanProblem& problem, const Plan& plan)
      : problem_(problem),
        plan_(plan),
        there_ns_(problem.param_class.size(), 0),
        shard_ns_(problem.param_class.size(), 0),
        ahead_(problem.param_class.size(), false) {}

  FetchForecast Run(const Trace& trace,
                    const std::vector<int64_t>& compute_ns) {
    Begin();
    for (size_t i = 0; i < trace.size(); ++i) {
      MakeMoves(2 * i);
      const auto [kind, chunk] = trace[i];
      if (kind == AccessKind::kUse) Use(chunk.index());
      MakeMoves(2 * i + 1);
      now_ns_ += compute_ns[i];
    }
    return forecast_;
  }

 private:
  // What the step before left is there.
  void Begin() {
    std::vector<bool> copies(there_ns_.size(), false);
    std::vector<bool> shards(there_ns_.size(), false);
    const auto keep = [&](ChunkId chunk, std::vector<bool>& of, bool there) {
      of[chunk.index()] = there && problem_.survives_step[chunk.index()];
    };
    for (const ChunkId chunk : plan_.initial) keep(chunk, copies, true);
    for (const ChunkId chunk : plan_.initial_shards) keep(chunk, shards, true);
    for (const Move& move : plan_.moves) {
      const bool comes =
          move.kind == MoveKind::kGather || move.kind == MoveKind::kFetchShard;
      const bool whole =
          move.kind == MoveKind::kGather || move.kind == MoveKind::kRelease;
      keep(move.chunk, whole ? copies : shards, comes);
    }
    std::vector<bool> sent(there_ns_.size(), false);
    for (const ChunkId chunk : plan_.initial_shards) {
      sent[chunk.index()] = true;
      if (!shards[chunk.index()]) FetchShard(chunk.index());
    }
    for (const ChunkId chunk : plan_.initial) {
      if (copies[chunk.index()]) continue;
      Gather(chunk.index(), sent[chunk.index()], RunCause::kPrefetch);
    }
  }

  void MakeMoves(size_t slice) {
    for (int32_t m = plan_.first_move[slice]; m < plan_.first_move[slice + 1];
         ++m) {
      const Move& move = plan_.moves[static_cast<size_t>(m)];
      if (move.kind == MoveKind::kGather) {
        Gather(move.chunk.index(), move.from_shard, move.cause);
      } else if (move.kind == MoveKind::kFetchShard) {
        FetchShard(move.chunk.index());
      }
    }
  }

  void Gather(size_t chunk, bool from_shard, RunCause cause) {
    there_ns_[chunk] = from_shard ? Pass(chunk, kGatherLeg, kFetchLegs,
                                         std::max(now_ns_, shard_ns_[chunk]))
                                  : Pass(chunk, 0, kFetchLegs, now_ns_);
    if (cause != RunCause::kPrefetch) return;
    ahead_[chunk] = true;
    forecast_.most_ahead = std::max(forecast_.most_ahead, ++under_way_);
  }

  void FetchShard(size_t chunk) {
    shard_ns_[chunk] = Pass(chunk, 0, kGatherLeg, now_ns_);
  }

  // When the chunk is off the last of the legs.
  int64_t Pass(size_t chunk, size_t leg, size_t end, int64_t at_ns) {
    for (; leg < end; ++leg) {
      const int64_t ns = problem_.fetch_ns[chunk][leg];
      if (ns == 0) continue;
      at_ns = std::max(at_ns, free_ns_[leg]) + ns;
      free_ns_[leg] = at_ns;
    }
    return at_ns;
  }

  void Use(size_t chunk) {
    under_way_ -= ahead_[chunk] ? 1 : 0;
    ahead_[chunk] = false;
    if (there_ns_[chunk] <= now_ns_) return;
    ++forecast_.late;
    forecast_.stall_ns += there_ns_[chunk] - now_ns_;
    now_ns_ = there_ns_[chunk];
  }

  const PlanProblem& problem_;
  const Plan& plan_;
  std::vector<int64_t> there_ns_;  // by ChunkId, its copy
  std::vector<int64_t> shard_ns_;  // by ChunkId, its shard's
  std::vector<bool> ahead_;        // by ChunkId, begun and not yet used
  FetchLegs free_ns_{};
  int64_t now_ns_ = 0;
  int64_t under_way_ = 0;
  FetchForecast forecast_;
};

}  // namespace

std::optional<FetchForecast> ForeseeFetches(const Trace& trace,
                                            const PlanProblem& problem,
                                            const Plan& plan) {
  if (problem.fetch_ns.empty()) return std::nullopt;
  const std::vector<int64_t> compute_ns = PlannedComputeNs(trace, problem);
  if (compute_ns.empty()) return std::nullopt;
  return FetchReplay(problem, plan).Run(trace, compute_ns);
}

}  // namespace castor
