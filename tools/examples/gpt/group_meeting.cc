// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/group_meeting.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include "chunk/base/units.h"
#include "collectives/zero_engine.h"
#include "offload/pinned_arena.h"
#include "offload/slab.h"

namespace castor::gpt {
namespace {

// The bytes of every rank's `mine`, by rank. The ranks run one build.
template <typename T>
Result<std::vector<T>> ExchangeValues(RankGroup& group, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(group.world()));
  CASTOR_RETURN_IF_ERROR(
      group.Exchange(&mine, all.data(), Bytes(int64_t{sizeof(T)})));
  return all;
}

struct PostedStep {
  RankStep step;
  bool stop = false;
};

// PinnedArenaStats without the allocator's name, which all ranks share.
struct ArenaNumbers {
  HostSlabFacts slab;
  Bytes budget, in_use, peak, largest_gap, requested;
  int64_t buffers = 0;
  int64_t allocated = 0;
  int64_t refused = 0;
  Bytes live, active, resident, retained, metadata;
};

ArenaNumbers NumbersOf(const PinnedArenaStats& stats) {
  return {stats.slab,        stats.budget,    stats.in_use,  stats.peak,
          stats.largest_gap, stats.requested, stats.buffers, stats.allocated,
          stats.refused,     stats.live,      stats.active,  stats.resident,
          stats.retained,    stats.metadata};
}

PinnedArenaStats StatsOf(const std::string& allocator, const ArenaNumbers& n) {
  return {allocator,     n.slab,      n.budget,   n.in_use,    n.peak,
          n.largest_gap, n.requested, n.buffers,  n.allocated, n.refused,
          n.live,        n.active,    n.resident, n.retained,  n.metadata};
}

}  // namespace

Status GroupMeeting::AgreeOnRun(const TrainOptions& options,
                                int64_t text_size) {
  struct Run {
    int64_t numbers[6];
  };
  static constexpr const char* kNames[] = {
      "--steps", "--batch", "--accumulate",
      "--seq",   "--seed",  "the size of the text"};
  const Run mine = {{options.steps, options.batch, options.accumulate,
                     options.model.context, static_cast<int64_t>(options.seed),
                     text_size}};
  CASTOR_ASSIGN_OR_RETURN(const std::vector<Run> all,
                          ExchangeValues(*group_, mine));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (all[rank].numbers[i] == all[0].numbers[i]) continue;
      return InvalidArgument(fmt::format(
          "{} is {} on rank {} and {} on rank 0: start all ranks alike",
          kNames[i], all[rank].numbers[i], rank, all[0].numbers[i]));
    }
  }
  return OkStatus();
}

Status GroupMeeting::Post(int64_t step, const RankStep& mine,
                          StepBoard* board) {
  PostedStep posted;
  posted.step = mine;
  posted.stop = stop_ != nullptr && *stop_;
  CASTOR_ASSIGN_OR_RETURN(const std::vector<PostedStep> all,
                          ExchangeValues(*group_, posted));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].stop) stop_of_all_ = true;
    board->Post(static_cast<int>(rank), step, all[rank].step);
  }
  return OkStatus();
}

Status GroupMeeting::GatherNumbers(TrainOutcome* outcome) {
  CASTOR_ASSIGN_OR_RETURN(outcome->ranks,
                          ExchangeValues(*group_, outcome->ranks.front()));
  const std::string allocator = outcome->arenas.front().allocator;
  CASTOR_ASSIGN_OR_RETURN(
      const std::vector<ArenaNumbers> arenas,
      ExchangeValues(*group_, NumbersOf(outcome->arenas.front())));
  outcome->arenas.clear();
  for (const ArenaNumbers& arena : arenas) {
    outcome->arenas.push_back(StatsOf(allocator, arena));
  }
  if (outcome->links.empty()) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(outcome->links,
                          ExchangeValues(*group_, outcome->links.front()));
  return OkStatus();
}

}  // namespace castor::gpt
