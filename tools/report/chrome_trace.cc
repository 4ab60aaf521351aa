// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chunk/text/json_value.h"
#include "chunk/text/units_text.h"
#include "collectives/sealing/run_chunks.h"
#include "tools/report/statistics/intervals.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

// A line of the file, rendered when it is written.
struct Entry {
  int64_t ns = 0;
  char phase = 'X';  // as in the format: X, i, C, b, e, s, f; K: C of kinds_
  int64_t tid = 0;
  size_t index = 0;  // of an event, or of a residency for b, e, s and f
  size_t added = 0;  // breaks ties of time
};

// Which group of tracks an event is drawn on, and its title; groups are shown
// in this order.
std::pair<int, std::string> TrackOf(const RunEvent& event) {
  switch (event.kind) {
    case RunEventKind::kStep:
    case RunEventKind::kDivergence:
      return {0, "steps"};
    case RunEventKind::kUse:
      return {1, "chunks in use"};
    case RunEventKind::kStall:
      return {2, "stalls"};
    case RunEventKind::kTransfer:
      return {
          3 + static_cast<int>(3 * TierIndex(event.from) + TierIndex(event.to)),
          LinkName(LinkOf(event))};
    case RunEventKind::kGather:
      return {12, "all-gather"};
    case RunEventKind::kReduceScatter:
      return {13, "reduce-scatter"};
    case RunEventKind::kUpdate:
      return {14, "updates"};
    default:
      return {15, "leases"};
  }
}

std::string NameOf(const RunEvent& event, const StateNames& states) {
  switch (event.kind) {
    case RunEventKind::kStep:
      return fmt::format("step {}", event.step);
    case RunEventKind::kStall:
      return fmt::format("wait for chunk {}", event.chunk);
    case RunEventKind::kTransfer:
      return fmt::format("chunk {} {}", event.chunk, states.of(event.state));
    case RunEventKind::kLease:
      return "lease";
    case RunEventKind::kDivergence:
      return "departed from the recorded step";
    default:
      return fmt::format("chunk {}", event.chunk);
  }
}

// Bytes of a rank's device from a time on.
struct Kinds {
  int32_t rank = 0;
  int64_t gathered = 0;
  int64_t prefetched = 0;
  int64_t borrowed = 0;
};

class Exporter {
 public:
  Exporter(const RunRecord& record, const StepRange& steps, std::ostream& out)
      : record_(record),
        states_(record.states()),
        out_(out),
        events_(EventsOf(record, steps)),
        residencies_(FindResidencies(events_)) {}

  void Write() {
    base_ns_ = events_.empty() ? 0 : events_.front().begin_ns;
    out_ << "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"complete\":"
         << (record_.completeness.ok() ? "true" : "false")
         << ",\"dropped_events\":" << record_.dropped
         << ",\"first_event_ns\":" << base_ns_ << "},\n\"traceEvents\":[";
    for (const RunRankInfo& rank : record_.ranks) DescribeRank(rank);
    AddTracks();
    AddInstantsAndCounters();
    AddKinds();
    AddResidencies();
    AddFlows();
    for (size_t i = 0; i < entries_.size(); ++i) entries_[i].added = i;
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) {
                return std::pair(a.ns, a.added) < std::pair(b.ns, b.added);
              });
    for (const Entry& entry : entries_) WriteEntry(entry);
    out_ << "\n]}\n";
  }

 private:
  // Viewers take process and thread 0 for the idle ones and hide them.
  static int64_t Pid(int32_t rank) { return int64_t{rank} + 1; }

  // `fields` is the inside of a JSON object.
  void WriteLine(const std::string& fields) {
    out_ << (first_ ? "\n{" : ",\n{") << fields << "}";
    first_ = false;
  }

  void WriteMetadata(int64_t pid, int64_t tid, std::string_view what,
                     std::string_view key, const std::string& value) {
    WriteLine(fmt::format(
        R"("ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}})", pid,
        tid, what, key, value));
  }

  void DescribeRank(const RunRankInfo& rank) {
    const int64_t pid = Pid(rank.rank);
    WriteMetadata(pid, pid, "process_name", "name",
                  JsonAsciiText(fmt::format("rank {}", rank.rank)));
    WriteMetadata(pid, pid, "process_sort_index", "sort_index",
                  std::to_string(rank.rank));
    std::string label =
        fmt::format("of {}, ZeRO stage {}", rank.world, rank.stage);
    for (const Tier tier : kAllTiers) {
      const int64_t budget = rank.budget_bytes[TierIndex(tier)];
      if (budget == 0) continue;
      label +=
          fmt::format(", {} {}", TierName(tier), FormatSize(Bytes(budget)));
    }
    WriteMetadata(pid, pid, "process_labels", "labels", JsonAsciiText(label));
    chunks_[rank.rank] = &rank.chunks;
  }

  // Everything that takes time, by rank and group of tracks.
  void AddTracks() {
    tids_.resize(events_.size());
    struct Group {
      std::string title;
      std::vector<size_t> events;
    };
    std::map<std::pair<int32_t, int>, Group> groups;
    for (size_t i = 0; i < events_.size(); ++i) {
      const RunEvent& event = events_[i];
      if (event.kind == RunEventKind::kRelease ||
          event.kind == RunEventKind::kTierBytes) {
        continue;
      }
      auto [number, title] = TrackOf(event);
      Group& group = groups[{event.rank, number}];
      group.title = std::move(title);
      if (event.kind != RunEventKind::kDivergence) group.events.push_back(i);
    }
    // No two threads of the trace share a number, in whichever process, nor
    // has one the number of a process.
    int64_t tid = 1;
    for (const RunRankInfo& rank : record_.ranks) {
      tid = std::max(tid, Pid(rank.rank) + 1);
    }
    for (const RunEvent& event : events_) {
      tid = std::max(tid, Pid(event.rank) + 1);
    }
    for (const auto& [rank_and_number, group] : groups) {
      const auto [rank, number] = rank_and_number;
      std::vector<Interval> times;
      for (const size_t i : group.events) {
        times.push_back({events_[i].begin_ns, events_[i].end_ns});
      }
      const std::vector<int> tracks = AssignSubTracks(times);
      const int count =
          tracks.empty() ? 1
                         : 1 + *std::max_element(tracks.begin(), tracks.end());
      for (int track = 0; track < count; ++track) {
        const std::string title =
            track == 0 ? group.title
                       : fmt::format("{} ({})", group.title, track + 1);
        NameTrack(Pid(rank), tid + track, title);
      }
      for (size_t k = 0; k < group.events.size(); ++k) {
        tids_[group.events[k]] = tid + tracks[k];
        entries_.push_back(
            {times[k].begin, 'X', tid + tracks[k], group.events[k]});
      }
      if (number == 0) step_tids_[rank] = tid;
      tid += count;
    }
  }

  void NameTrack(int64_t pid, int64_t tid, const std::string& title) {
    WriteMetadata(pid, tid, "thread_name", "name", JsonAsciiText(title));
    WriteMetadata(pid, tid, "thread_sort_index", "sort_index",
                  std::to_string(++named_tracks_));
  }

  void AddInstantsAndCounters() {
    for (size_t i = 0; i < events_.size(); ++i) {
      const RunEvent& event = events_[i];
      if (event.kind == RunEventKind::kDivergence) {
        entries_.push_back({event.begin_ns, 'i', step_tids_[event.rank], i});
      } else if (event.kind == RunEventKind::kTierBytes) {
        entries_.push_back({event.begin_ns, 'C', 0, i});
      }
    }
  }

  // How much of each device is copies that are used or were, copies that are
  // there ahead of use, and bytes on lease.
  void AddKinds() {
    // By rank and time.
    std::map<std::pair<int32_t, int64_t>, Kinds> changes;
    const auto add = [&](int32_t rank, int64_t ns, int64_t Kinds::*kind,
                         int64_t bytes) {
      changes[{rank, ns}].*kind += bytes;
    };
    for (const Residency& stay : residencies_) {
      const int64_t bytes = ChunkBytes(stay.rank, stay.chunk);
      add(stay.rank, stay.time.begin, &Kinds::prefetched, bytes);
      add(stay.rank, stay.first_use_ns, &Kinds::prefetched, -bytes);
      add(stay.rank, stay.first_use_ns, &Kinds::gathered, bytes);
      add(stay.rank, stay.time.end, &Kinds::gathered, -bytes);
    }
    for (const RunEvent& event : events_) {
      if (event.kind != RunEventKind::kLease) continue;
      add(event.rank, event.begin_ns, &Kinds::borrowed, event.bytes);
      add(event.rank, event.end_ns, &Kinds::borrowed, -event.bytes);
    }
    int32_t rank = -1;
    Kinds now;
    for (const auto& [rank_and_time, change] : changes) {
      if (rank_and_time.first != rank) now = Kinds();
      rank = rank_and_time.first;
      now.gathered += change.gathered;
      now.prefetched += change.prefetched;
      now.borrowed += change.borrowed;
      now.rank = rank;
      entries_.push_back({rank_and_time.second, 'K', 0, kinds_.size()});
      kinds_.push_back(now);
    }
  }

  int64_t ChunkBytes(int32_t rank, int32_t chunk) const {
    const auto chunks = chunks_.find(rank);
    const auto index = static_cast<size_t>(chunk);
    if (chunks == chunks_.end() || index >= chunks->second->size()) return 0;
    return (*chunks->second)[index].bytes;
  }

  // Begin and end in order, so that each end stays behind its own begin.
  void AddResidencies() {
    for (size_t i = 0; i < residencies_.size(); ++i) {
      entries_.push_back({residencies_[i].time.begin, 'b', 0, i});
      entries_.push_back({residencies_[i].time.end, 'e', 0, i});
    }
  }

  // From what prefetched each copy to the copy's first use. An end binds to the
  // slice that holds its time, so slices without length get none.
  void AddFlows() {
    std::map<std::pair<int32_t, int32_t>, std::vector<size_t>> uses;
    for (size_t i = 0; i < events_.size(); ++i) {
      const RunEvent& event = events_[i];
      if (event.kind == RunEventKind::kUse && event.end_ns > event.begin_ns) {
        uses[{event.rank, event.chunk}].push_back(i);
      }
    }
    for (size_t i = 0; i < residencies_.size(); ++i) {
      const Residency& copy = residencies_[i];
      const RunEvent& fetch = events_[copy.made_by];
      if (fetch.cause != RunCause::kPrefetch) continue;
      if (fetch.end_ns == fetch.begin_ns) continue;
      const std::vector<size_t>& of_chunk = uses[{copy.rank, copy.chunk}];
      const auto use =
          std::lower_bound(of_chunk.begin(), of_chunk.end(), fetch.begin_ns,
                           [this](size_t event, int64_t ns) {
                             return events_[event].begin_ns < ns;
                           });
      if (use == of_chunk.end()) continue;
      const int64_t used_ns = events_[*use].begin_ns;
      if (used_ns >= copy.time.end) continue;
      // Late in the fetch, yet in it, and not after the use.
      const int64_t from_ns = std::min(fetch.end_ns - 1, used_ns);
      entries_.push_back({from_ns, 's', tids_[copy.made_by], i});
      entries_.push_back({used_ns, 'f', tids_[*use], i});
    }
  }

  static std::string Micros(int64_t ns) {
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
  }

  void WriteEntry(const Entry& entry) {
    std::string line = fmt::format(R"("ph":"{}","ts":{})", entry.phase,
                                   Micros(entry.ns - base_ns_));
    if (entry.phase == 'b' || entry.phase == 'e') {
      AddResidency(residencies_[entry.index], entry.phase, &line);
    } else if (entry.phase == 's' || entry.phase == 'f') {
      line += fmt::format(
          R"(,"pid":{},"tid":{},"cat":"prefetch","name":"prefetch","id":{})",
          Pid(residencies_[entry.index].rank), entry.tid, entry.index + 1);
      if (entry.phase == 'f') line += R"(,"bp":"e")";
    } else if (entry.phase == 'K') {
      const Kinds& kinds = kinds_[entry.index];
      line = fmt::format(
          R"("ph":"C","ts":{},"pid":{},"name":"device by kind","args":)"
          R"({{"gathered":{},"prefetched":{},"borrowed":{}}})",
          Micros(entry.ns - base_ns_), Pid(kinds.rank), kinds.gathered,
          kinds.prefetched, kinds.borrowed);
    } else if (entry.phase == 'C') {
      const RunEvent& event = events_[entry.index];
      line +=
          fmt::format(R"(,"pid":{},"name":"{} bytes","args":{{"bytes":{}}})",
                      Pid(event.rank), TierName(event.to), event.bytes);
    } else {
      AddEvent(events_[entry.index], entry, &line);
    }
    WriteLine(line);
  }

  void AddEvent(const RunEvent& event, const Entry& entry,
                std::string* line) const {
    if (entry.phase == 'X') {
      *line +=
          fmt::format(R"(,"dur":{})", Micros(event.end_ns - event.begin_ns));
    } else {
      *line += R"(,"s":"t")";
    }
    *line += fmt::format(
        R"(,"pid":{},"tid":{},"cat":"{}","name":"{}","args":{{"step":{})",
        Pid(event.rank), entry.tid, RunEventKindName(event.kind),
        NameOf(event, states_), event.step);
    if (event.moment >= 0)
      *line += fmt::format(R"(,"access_index":{})", event.moment);
    if (event.bytes > 0) *line += fmt::format(R"(,"bytes":{})", event.bytes);
    if (event.cause != RunCause::kNone) {
      *line += fmt::format(R"(,"cause":"{}")", RunCauseName(event.cause));
    }
    *line += "}";
  }

  void AddResidency(const Residency& residency, char phase,
                    std::string* line) const {
    *line += fmt::format(
        R"(,"pid":{},"tid":{},"cat":"residency","id":"rank {} chunk {}",)"
        R"("name":"chunk {}","args":{{)",
        Pid(residency.rank), Pid(residency.rank), residency.rank,
        residency.chunk, residency.chunk);
    if (phase == 'e') {
      *line +=
          fmt::format(R"("released":"{}"}})", RunCauseName(residency.released));
      return;
    }
    *line += fmt::format(R"("fetched":"{}")", RunCauseName(residency.fetched));
    const auto chunks = chunks_.find(residency.rank);
    const auto chunk = static_cast<size_t>(residency.chunk);
    if (chunks != chunks_.end() && chunk < chunks->second->size()) {
      const RunChunkInfo& info = (*chunks->second)[chunk];
      *line += fmt::format(R"(,"bytes":{},"parameters":{})", info.bytes,
                           JsonAsciiText(FewNames(info.params)));
    }
    *line += "}";
  }

  const RunRecord& record_;
  const StateNames states_;
  std::ostream& out_;
  std::vector<RunEvent> events_;  // by begin
  std::vector<Residency> residencies_;
  std::vector<Entry> entries_;
  std::vector<Kinds> kinds_;
  std::vector<int64_t> tids_;  // by event; 0: on no track
  std::map<int32_t, const std::vector<RunChunkInfo>*> chunks_;  // by rank
  std::map<int32_t, int64_t> step_tids_;                        // by rank
  int64_t base_ns_ = 0;
  int64_t named_tracks_ = 0;
  bool first_ = true;
};

}  // namespace

void WriteChromeTrace(const RunRecord& record, const StepRange& steps,
                      std::ostream& out) {
  Exporter(record, steps, out).Write();
}

}  // namespace castor
