// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/explain/explain_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/glob.h"
#include "chunk/base/quote.h"
#include "tools/report/intervals.h"

namespace castor {
namespace {

constexpr int kParts = 32;

// The names of "wte.weight,wpe.weight,+3": the end says how many were left out.
std::vector<std::string> NamesOf(std::string_view params) {
  std::vector<std::string> names;
  while (!params.empty()) {
    const size_t comma = params.find(',');
    const std::string_view name = params.substr(0, comma);
    const bool more =
        name.size() > 1 && name[0] == '+' &&
        std::all_of(name.begin() + 1, name.end(),
                    [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!name.empty() && !more) names.emplace_back(name);
    if (comma == params.npos) break;
    params.remove_prefix(comma + 1);
  }
  return names;
}

Result<std::vector<int32_t>> MatchingChunks(
    std::span<const RunChunkInfo> chunks, const std::string& pattern) {
  const Glob glob(pattern);
  std::vector<int32_t> matching;
  std::vector<std::string> known;
  for (size_t c = 0; c < chunks.size(); ++c) {
    std::vector<std::string> names = NamesOf(chunks[c].params);
    names.push_back(fmt::format("chunk.{}", c));
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return glob.Matches(name);
        })) {
      matching.push_back(static_cast<int32_t>(c));
    }
    known.insert(known.end(), names.begin(), names.end());
  }
  if (!matching.empty()) return matching;
  const std::optional<std::string> nearest = NearestName(pattern, known);
  return InvalidArgument(fmt::format(
      "{} matches none of the {} chunks; a record has the first names of each "
      "only, and chunk.N names one by its number{}",
      Quoted(pattern), chunks.size(),
      nearest ? fmt::format("; the nearest name is {}", Quoted(*nearest))
              : std::string()));
}

std::vector<ChunkMoves> MovesOf(const RunRecord& record, int32_t chunk,
                                const StepRange& steps) {
  std::map<std::tuple<StateKind, RunEventKind, Tier, Tier>, ChunkMoves> moves;
  for (const RunEvent& event : record.events) {
    if (event.chunk != chunk || !steps.Holds(event.step) ||
        !MovesBytes(event)) {
      continue;
    }
    const LinkId link = LinkOf(event);
    ChunkMoves& move = moves[{event.state, link.kind, link.from, link.to}];
    move.state = event.state;
    move.link = link;
    ++move.count;
    ++move.count_by_cause[static_cast<size_t>(event.cause)];
    move.bytes += event.bytes;
    move.ns += event.end_ns - event.begin_ns;
  }
  std::vector<ChunkMoves> in_order;
  for (auto& [key, move] : moves) in_order.push_back(std::move(move));
  return in_order;
}

class Explainer {
 public:
  Explainer(const RunRecord& record, const StepRange& steps)
      : record_(record),
        steps_(steps),
        windows_(FindStepWindows(record, steps)),
        links_(ComputeLinkStatistics(record, windows_, steps, kParts)),
        residencies_(FindResidencies(record.events)) {
    others_ = record;
    std::erase_if(others_.events, [](const RunEvent& event) {
      return event.kind == RunEventKind::kStall;
    });
    for (const StepWindow& window : windows_) {
      if (window.complete && window.rank == windows_.front().rank) {
        shown_ = window;
      }
    }
  }

  bool empty() const { return windows_.empty(); }
  const std::optional<StepWindow>& shown() const { return shown_; }
  std::span<const StepWindow> windows() const { return windows_; }

  ExplainedRunChunk Explain(int32_t chunk, const RunChunkInfo& info) {
    ExplainedRunChunk one;
    one.chunk = chunk;
    one.bytes = info.bytes;
    one.params = info.params;
    AddResidencies(&one);
    one.moves = MovesOf(record_, chunk, steps_);
    AddStalls(&one);
    return one;
  }

 private:
  void AddResidencies(ExplainedRunChunk* one) {
    one->over_step.assign(kParts, 0);
    int64_t whole_ns = 0;
    int64_t there_ns = 0;
    const double weight = 1 / static_cast<double>(windows_.size());
    for (const StepWindow& window : windows_) {
      whole_ns += window.time.length();
      std::vector<Interval> times;
      for (const Residency& each : residencies_) {
        if (each.rank == window.rank && each.chunk == one->chunk) {
          times.push_back(each.time);
        }
      }
      const IntervalSet there =
          Intersection(Union(std::move(times)), {window.time});
      there_ns += Length(there);
      AddShares(there, window.time, weight, one->over_step);
    }
    one->resident_share =
        static_cast<double>(there_ns) / static_cast<double>(whole_ns);
    for (const Residency& each : residencies_) {
      if (each.chunk != one->chunk || !steps_.Holds(each.step)) continue;
      ++one->fetched[static_cast<size_t>(each.fetched)];
      ++one->released[static_cast<size_t>(each.released)];
    }
    if (!shown_) return;
    for (const Residency& each : residencies_) {
      if (each.chunk != one->chunk || each.rank != shown_->rank ||
          each.time.end <= shown_->time.begin ||
          each.time.begin >= shown_->time.end) {
        continue;
      }
      Residency there = each;
      there.time.begin =
          std::max<int64_t>(each.time.begin - shown_->time.begin, 0);
      there.time.end = each.time.end - shown_->time.begin;
      one->last_step.push_back(there);
    }
  }

  // The statistics of a record in which nobody waits for another chunk.
  void AddStalls(ExplainedRunChunk* one) {
    const size_t before = others_.events.size();
    int64_t divergences = 0;
    for (const RunEvent& event : record_.events) {
      divergences += event.kind == RunEventKind::kDivergence;
      if (event.kind == RunEventKind::kStall && event.chunk == one->chunk) {
        others_.events.push_back(event);
      }
    }
    one->stalls = ComputeStallStatistics(others_, links_, steps_, 1);
    others_.events.resize(before);
    for (const StallStatistics& stall : one->stalls) {
      one->hints.push_back(StallHint(stall, divergences, windows_.back().step));
    }
  }

  const RunRecord& record_;
  const StepRange steps_;
  const std::vector<StepWindow> windows_;
  const std::vector<LinkStatistics> links_;
  const std::vector<Residency> residencies_;
  RunRecord others_;  // without stalls
  std::optional<StepWindow> shown_;
};

}  // namespace

Result<ExplainedRun> ExplainRun(const RunRecord& record,
                                const std::string& pattern,
                                const StepRange& steps) {
  if (record.ranks.empty()) {
    return InvalidArgument(
        "no rank is described in the record, so there are no chunks to "
        "explain: it was cut off at its beginning");
  }
  const std::vector<RunChunkInfo>& chunks = record.ranks.front().chunks;
  CASTOR_ASSIGN_OR_RETURN(const std::vector<int32_t> matching,
                          MatchingChunks(chunks, pattern));
  Explainer explainer(record, steps);
  if (explainer.empty()) {
    return InvalidArgument(fmt::format(
        "the record holds none of the steps asked for; its last one is {}",
        LastStep(record)));
  }
  ExplainedRun run;
  run.ranks = std::ssize(record.ranks);
  run.first_step = run.last_step = explainer.windows().front().step;
  for (const StepWindow& window : explainer.windows()) {
    run.first_step = std::min(run.first_step, window.step);
    run.last_step = std::max(run.last_step, window.step);
  }
  if (explainer.shown()) {
    run.shown_step = explainer.shown()->step;
    run.shown_ns = explainer.shown()->time.length();
  }
  for (const int32_t chunk : matching) {
    run.chunks.push_back(
        explainer.Explain(chunk, chunks[static_cast<size_t>(chunk)]));
  }
  return run;
}

}  // namespace castor
