// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "chunk/base/stable_sort.h"
#include "chunk/text/quote.h"
#include "placement/run_event.h"
#include "tools/report/statistics/intervals.h"

namespace castor {
namespace {

// As the reader promises of one file.
constexpr int64_t kMaxSum = int64_t{1} << 62;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// By step, of any rank.
std::map<int32_t, Interval> StepsOf(const RunRecord& record) {
  std::map<int32_t, Interval> steps;
  for (const RunEvent& event : record.events) {
    if (event.kind != RunEventKind::kStep) continue;
    steps[event.step] = {event.begin_ns, event.end_ns};
  }
  return steps;
}

// Whether some step was at one time in both, or no step is in both.
bool ShareAClock(const RunRecord& a, const RunRecord& b) {
  const std::map<int32_t, Interval> steps = StepsOf(a);
  bool common = false;
  for (const auto& [step, time] : StepsOf(b)) {
    const auto other = steps.find(step);
    if (other == steps.end()) continue;
    common = true;
    if (time.begin < other->second.end && other->second.begin < time.end) {
      return true;
    }
  }
  return !common;
}

struct Sums {
  int64_t bytes = 0;
  int64_t ns = 0;
};

Sums SumsOf(const RunRecord& record) {
  Sums sums;
  for (const RunEvent& event : record.events) {
    if (event.kind == RunEventKind::kTierBytes) continue;
    sums.bytes += event.bytes;
    sums.ns += event.end_ns - event.begin_ns;
  }
  return sums;
}

// Whether the time from the first to the last event, times the ranks, fits.
bool SpanFits(const RunRecord& run) {
  if (run.events.empty()) return true;
  int64_t first = INT64_MAX;
  int64_t last = INT64_MIN;
  std::set<int32_t> ranks;
  for (const RunEvent& event : run.events) {
    first = std::min(first, event.begin_ns);
    last = std::max(last, event.end_ns);
    ranks.insert(event.rank);
  }
  return last - first <= kMaxSum / std::ssize(ranks);
}

template <typename T>
void Append(std::vector<T>&& from, std::vector<T>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()),
             std::make_move_iterator(from.end()));
}

Status Add(RunRecord&& from, const std::string& file, const std::string& first,
           Sums* sums, RunRecord* to) {
  for (const RunRankInfo& rank : from.ranks) {
    for (const RunRankInfo& other : to->ranks) {
      if (rank.rank == other.rank) {
        return InvalidArgument(fmt::format(
            "{} and another of these files are both of rank {}: they are of "
            "several runs",
            QuotedPath(file), rank.rank));
      }
      if (rank.world != other.world ||
          rank.chunks.size() != other.chunks.size()) {
        return InvalidArgument(fmt::format(
            "{} is of another run than {}: it has {} ranks and {} chunks, and "
            "not {} and {}",
            QuotedPath(file), QuotedPath(first), rank.world, rank.chunks.size(),
            other.world, other.chunks.size()));
      }
    }
  }
  if (!ShareAClock(*to, from)) {
    return InvalidArgument(fmt::format(
        "the clocks of {} and {} differ, as those of two hosts do: look at "
        "each file by itself",
        QuotedPath(first), QuotedPath(file)));
  }
  const Sums more = SumsOf(from);
  if (more.bytes > kMaxSum - sums->bytes || more.ns > kMaxSum - sums->ns) {
    return Malformed(
        fmt::format("{} holds numbers that no run has", QuotedPath(file)));
  }
  sums->bytes += more.bytes;
  sums->ns += more.ns;
  Append(std::move(from.ranks), &to->ranks);
  Append(std::move(from.arenas), &to->arenas);
  Append(std::move(from.plans), &to->plans);
  Append(std::move(from.homes), &to->homes);
  Append(std::move(from.marks), &to->marks);
  Append(std::move(from.documents), &to->documents);
  Append(std::move(from.events), &to->events);
  to->dropped += from.dropped;
  to->file_bytes += from.file_bytes;
  if (to->completeness.ok() && !from.completeness.ok()) {
    to->completeness = from.completeness.WithContext(QuotedPath(file));
  }
  return OkStatus();
}

}  // namespace

std::vector<std::string> RecordFilesOf(const std::string& path) {
  std::vector<std::string> files;
  while (!Exists(path)) {
    std::string next = fmt::format("{}.{}", path, files.size());
    if (!Exists(next)) break;
    files.push_back(std::move(next));
  }
  if (files.empty()) files.push_back(path);
  return files;
}

Result<RunRecord> ReadRun(const std::string& path) {
  const std::vector<std::string> files = RecordFilesOf(path);
  // Else the older of two runs would be shown for the newer.
  if (files.front() == path && Exists(path + ".0")) {
    return InvalidArgument(fmt::format(
        "{} and {} are records of two runs; move one of them to another folder",
        QuotedPath(path), QuotedPath(path + ".0")));
  }
  CASTOR_ASSIGN_OR_RETURN(RunRecord run, ReadRecord(files.front()));
  Sums sums = SumsOf(run);
  for (size_t i = 1; i < files.size(); ++i) {
    CASTOR_ASSIGN_OR_RETURN(RunRecord more, ReadRecord(files[i]));
    CASTOR_RETURN_IF_ERROR(
        Add(std::move(more), files[i], files.front(), &sums, &run));
  }
  if (!SpanFits(run)) {
    return Malformed(fmt::format("the records of {} hold times that no run has",
                                 QuotedPath(path)));
  }
  const auto by_rank = [](const auto& a, const auto& b) {
    return a.rank < b.rank;
  };
  StableSort(&run.ranks, by_rank);
  StableSort(&run.arenas, by_rank);
  StableSort(&run.plans, by_rank);
  return run;
}

}  // namespace castor
