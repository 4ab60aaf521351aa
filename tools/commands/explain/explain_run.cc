// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/explain/explain_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "chunk/base/did_you_mean.h"
#include "chunk/base/glob.h"
#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "placement/run_event.h"
#include "tools/cli/text_forms.h"
#include "tools/report/intervals.h"
#include "tools/report/report_document.h"
#include "tools/report/run_statistics.h"

namespace castor {
namespace {

constexpr int kParts = 32;

using CountByCause = std::array<int64_t, kRunCauses>;

// Why a chunk came, went or moved, by RunCause.
constexpr std::array<std::string_view, kRunCauses> kCauseWords = {
    "the record does not say why",
    "when it was asked for",
    "ahead of use",
    "to make room",
    "as the update changed it",
    "for gradients",
    "for the optimizer",
    "to refresh replicas",
    "at the start"};

std::string_view CauseText(RunCause cause) {
  return kCauseWords[static_cast<size_t>(cause)];
}

// "54 ahead of use, 2 when it was asked for".
std::string CountsText(const CountByCause& counts) {
  std::vector<std::string> texts;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    texts.push_back(fmt::format("{} {}", Grouped(counts[c]), kCauseWords[c]));
  }
  return texts.empty() ? "never" : fmt::format("{}", fmt::join(texts, ", "));
}

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

  Document Explain(const std::string& file,
                   const std::vector<int32_t>& chunks) {
    const auto [first, last] = std::minmax_element(
        windows_.begin(), windows_.end(),
        [](const auto& a, const auto& b) { return a.step < b.step; });
    doc_.Set("file", file);
    doc_.Set("ranks", record_.ranks.size());
    doc_.Set("first_step", first->step);
    doc_.Set("last_step", last->step);
    // That is shown stay by stay; 0: none is complete.
    doc_.Set("shown_step", shown_ ? shown_->step : 0);
    doc_.Set("shown_ns", shown_ ? shown_->time.length() : 0);
    doc_.Text(fmt::format(
        "{}: {}, {}\n", Shown(file), Plural(std::ssize(record_.ranks), "rank"),
        first->step == last->step
            ? fmt::format("step {}", first->step)
            : fmt::format("steps {} to {}", first->step, last->step)));
    doc_.Set("chunks", ListOf(chunks, [&](int32_t chunk) {
               return ExplainChunk(chunk);
             }));
    return std::move(doc_);
  }

 private:
  // Adds the chunk's paragraph and lines; its JSON.
  JsonValue ExplainChunk(int32_t chunk) {
    const RunChunkInfo& info =
        record_.ranks.front().chunks[static_cast<size_t>(chunk)];
    JsonValue json = Fields({{"chunk", chunk},
                             {"chunk_bytes", info.bytes},
                             {"params", info.params}});
    text_ = fmt::format("chunk {}, {}: {}\n", chunk,
                        FormatSize(Bytes(info.bytes)), Quoted(info.params));
    const double share = AddStays(chunk, &json);
    doc_.Line({"chunk", chunk, info.bytes, fmt::format("{:.6f}", share),
               Quoted(info.params)});
    json["moves"] = AddMoves(chunk);
    json["stalls"] = AddStalls(chunk);
    doc_.Gap();
    doc_.Text(std::move(text_));
    return json;
  }

  // For how much of the steps' time a gathered copy was there, on all ranks; a
  // chunk that is at home on the device has none.
  double AddStays(int32_t chunk, JsonValue* json) {
    std::vector<double> over_step(kParts, 0);
    int64_t whole_ns = 0;
    int64_t there_ns = 0;
    const double weight = 1 / static_cast<double>(windows_.size());
    for (const StepWindow& window : windows_) {
      whole_ns += window.time.length();
      std::vector<Interval> times;
      for (const Residency& each : residencies_) {
        if (each.rank == window.rank && each.chunk == chunk) {
          times.push_back(each.time);
        }
      }
      const IntervalSet there =
          Intersection(Union(std::move(times)), {window.time});
      there_ns += Length(there);
      AddShares(there, window.time, weight, over_step);
    }
    CountByCause fetched = {};
    CountByCause released = {};
    for (const Residency& each : residencies_) {
      if (each.chunk != chunk || !steps_.Holds(each.step)) continue;
      ++fetched[static_cast<size_t>(each.fetched)];
      ++released[static_cast<size_t>(each.released)];
    }
    const double share =
        static_cast<double>(there_ns) / static_cast<double>(whole_ns);
    (*json)["resident_share"] = share;
    (*json)["fetched"] = ByCauseJson(fetched);
    (*json)["released"] = ByCauseJson(released);
    (*json)["over_step"] = ListOf(over_step);
    text_ += fmt::format(
        "  gathered for {} of the time  |{}|\n  came {}\n  went {}\n",
        Percent(share), DrawStrip(over_step, StripInk::kAscii),
        CountsText(fetched), CountsText(released));
    (*json)["step"] = AddLastStep(chunk);
    return share;
  }

  // The copies that were there in the last step that is complete, on the lowest
  // rank, in time since that step began; those that were there before it begin
  // at 0.
  JsonValue AddLastStep(int32_t chunk) {
    constexpr size_t kMostStays = 8;
    Table stays({}, {{"begin_ns"}, {"end_ns"}, {"fetched"}, {"released"}});
    if (!shown_) return stays.Json();
    size_t count = 0;
    for (const Residency& each : residencies_) {
      if (each.chunk != chunk || each.rank != shown_->rank ||
          each.time.end <= shown_->time.begin ||
          each.time.begin >= shown_->time.end) {
        continue;
      }
      const int64_t begin =
          std::max<int64_t>(each.time.begin - shown_->time.begin, 0);
      const int64_t end = each.time.end - shown_->time.begin;
      stays.Add({begin, end, RunCauseName(each.fetched),
                 RunCauseName(each.released)});
      if (count++ == 0) {
        text_ +=
            fmt::format("  whole on the device in step {}, of {}:\n",
                        shown_->step, FormatDuration(shown_->time.length()));
      }
      if (count > kMostStays) continue;
      text_ += fmt::format(
          "    {:>9} to {:>9}  came {}, {}\n", FormatDuration(begin),
          FormatDuration(end), CauseText(each.fetched),
          each.released == RunCause::kNone
              ? std::string("and stayed")
              : fmt::format("went {}", CauseText(each.released)));
    }
    if (count > kMostStays) {
      text_ += fmt::format("    and {} more times\n", count - kMostStays);
    }
    return stays.Json();
  }

  // Of each state over each link, all ranks together.
  JsonValue AddMoves(int32_t chunk) {
    struct Moves {
      int64_t count = 0;
      CountByCause by_cause = {};
      int64_t bytes = 0;
      int64_t ns = 0;  // under way, summed
    };
    std::map<std::tuple<StateKind, RunEventKind, Tier, Tier>, Moves> moves;
    for (const RunEvent& event : record_.events) {
      if (event.chunk != chunk || !steps_.Holds(event.step) ||
          !MovesBytes(event)) {
        continue;
      }
      const LinkId link = LinkOf(event);
      Moves& move = moves[{event.state, link.kind, link.from, link.to}];
      ++move.count;
      ++move.by_cause[static_cast<size_t>(event.cause)];
      move.bytes += event.bytes;
      move.ns += event.end_ns - event.begin_ns;
    }
    Table table(
        {},
        {{"state"}, {"link"}, {"count"}, {"causes"}, {"moved_bytes"}, {"ns"}});
    for (const auto& [key, move] : moves) {
      const auto& [kind, link_kind, from, to] = key;
      const std::string_view state = StateKindName(kind);
      const std::string link = LinkName({link_kind, from, to});
      table.Add({state, link, move.count, ByCauseJson(move.by_cause),
                 move.bytes, move.ns});
      doc_.Line({"moves", chunk, state, link, move.count, move.bytes, move.ns});
      text_ += fmt::format("  {} {}: {} in {}, {} under way\n", state, link,
                           FormatSize(Bytes(move.bytes)),
                           Plural(move.count, "move"), FormatDuration(move.ns));
    }
    return table.Json();
  }

  // The statistics of a record in which nobody waits for another chunk.
  JsonValue AddStalls(int32_t chunk) {
    const size_t before = others_.events.size();
    int64_t divergences = 0;
    for (const RunEvent& event : record_.events) {
      divergences += event.kind == RunEventKind::kDivergence;
      if (event.kind == RunEventKind::kStall && event.chunk == chunk) {
        others_.events.push_back(event);
      }
    }
    const std::vector<StallStatistics> stalls =
        ComputeStallStatistics(others_, links_, steps_, 1);
    others_.events.resize(before);
    Table table({},
                {{"cause"}, {"count"}, {"ns"}, {"busiest"}, {"busiest_share"}});
    for (const StallStatistics& stall : stalls) {
      const std::string_view cause = RunCauseName(stall.cause);
      table.Add({cause, stall.count, stall.ns,
                 stall.busiest ? Value(LinkName(*stall.busiest)) : Value(),
                 stall.busiest_share});
      doc_.Line({"stall", chunk, cause, stall.count, stall.ns});
      text_ +=
          fmt::format("  waited for {} in {}: {}\n", FormatDuration(stall.ns),
                      Plural(stall.count, "wait"), WaitTitle(stall.cause));
      const std::string hint =
          StallHint(stall, divergences, windows_.back().step);
      if (!hint.empty()) text_ += fmt::format("    {}\n", hint);
    }
    if (stalls.empty()) text_ += "  nobody waited for it\n";
    return table.Json();
  }

  const RunRecord& record_;
  const StepRange steps_;
  const std::vector<StepWindow> windows_;
  const std::vector<LinkStatistics> links_;
  const std::vector<Residency> residencies_;
  RunRecord others_;  // without stalls
  std::optional<StepWindow> shown_;
  std::string text_;  // of the chunk that is explained
  Document doc_{"castor.run-explanation/1"};
};

}  // namespace

Result<Document> ExplainRun(const std::string& file, const RunRecord& record,
                            const std::string& pattern,
                            const StepRange& steps) {
  if (record.ranks.empty()) {
    return InvalidArgument(
        "no rank is described in the record, so there are no chunks to "
        "explain: it was cut off at its beginning");
  }
  CASTOR_ASSIGN_OR_RETURN(const std::vector<int32_t> matching,
                          MatchingChunks(record.ranks.front().chunks, pattern));
  Explainer explainer(record, steps);
  if (explainer.empty()) {
    return InvalidArgument(fmt::format(
        "the record holds none of the steps asked for; its last one is {}",
        LastStep(record)));
  }
  return explainer.Explain(file, matching);
}

}  // namespace castor
