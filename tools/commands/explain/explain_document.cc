// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/explain/explain_run.h"

namespace castor {
namespace {

using CountByCause = std::array<int64_t, kRunCauses>;

std::string_view CauseText(RunCause cause) {
  switch (cause) {
    case RunCause::kNone:
      return "the record does not say why";
    case RunCause::kDemand:
      return "when it was asked for";
    case RunCause::kPrefetch:
      return "ahead of use";
    case RunCause::kRoom:
      return "to make room";
    case RunCause::kStale:
      return "as the update changed it";
    case RunCause::kGradient:
      return "for gradients";
    case RunCause::kOptimizer:
      return "for the optimizer";
    case RunCause::kRefresh:
      return "to refresh replicas";
    case RunCause::kStart:
      return "at the start";
  }
  return "";
}

// Why lanes waited.
std::string_view WaitText(RunCause cause) {
  switch (cause) {
    case RunCause::kDemand:
      return "it was fetched only when it was asked for";
    case RunCause::kPrefetch:
      return "it was fetched ahead, too late";
    case RunCause::kOptimizer:
      return "it was still being updated";
    case RunCause::kGradient:
      return "no slot was free for its gradient";
    default:
      return CauseText(cause);
  }
}

// "54 ahead of use, 2 when it was asked for".
std::string CountsText(const CountByCause& counts) {
  std::string text;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", Grouped(counts[c]),
                        CauseText(static_cast<RunCause>(c)));
  }
  return text.empty() ? std::string("never") : text;
}

JsonValue CountsJson(const CountByCause& counts) {
  JsonValue json = JsonValue::Object();
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    json[RunCauseName(static_cast<RunCause>(c))] = counts[c];
  }
  return json;
}

std::string LastStepText(const ExplainedRun& run,
                         const ExplainedRunChunk& one) {
  constexpr size_t kShown = 8;
  if (one.last_step.empty()) return "";
  std::string text = fmt::format("  whole on the device in step {}, of {}:\n",
                                 run.shown_step, FormatDuration(run.shown_ns));
  for (size_t i = 0; i < one.last_step.size() && i < kShown; ++i) {
    const Residency& there = one.last_step[i];
    text += fmt::format(
        "    {:>9} to {:>9}  came {}, {}\n", FormatDuration(there.time.begin),
        FormatDuration(there.time.end), CauseText(there.fetched),
        there.released == RunCause::kNone
            ? std::string("and stayed")
            : fmt::format("went {}", CauseText(there.released)));
  }
  if (one.last_step.size() > kShown) {
    text +=
        fmt::format("    and {} more times\n", one.last_step.size() - kShown);
  }
  return text;
}

// Adds the chunk's page and lines to `doc`; its JSON.
JsonValue AddChunk(const ExplainedRun& run, const ExplainedRunChunk& one,
                   Document* doc) {
  doc->Line({"chunk", one.chunk, one.bytes,
             fmt::format("{:.6f}", one.resident_share), Quoted(one.params)});
  std::string text = fmt::format(
      "chunk {}, {}: {}\n"
      "  gathered for {} of the time  |{}|\n"
      "  came {}\n"
      "  went {}\n",
      one.chunk, FormatSize(Bytes(one.bytes)), Quoted(one.params),
      Percent(one.resident_share), DrawStrip(one.over_step, StripInk::kAscii),
      CountsText(one.fetched), CountsText(one.released));
  text += LastStepText(run, one);
  Table moves(
      {},
      {{"state"}, {"link"}, {"count"}, {"causes"}, {"moved_bytes"}, {"ns"}});
  for (const ChunkMoves& move : one.moves) {
    const std::string_view state = StateKindName(move.state);
    const std::string link = LinkName(move.link);
    moves.Add({state, link, move.count, CountsJson(move.count_by_cause),
               move.bytes, move.ns});
    doc->Line(
        {"moves", one.chunk, state, link, move.count, move.bytes, move.ns});
    text += fmt::format("  {} {}: {} in {}, {} under way\n", state, link,
                        FormatSize(Bytes(move.bytes)),
                        Plural(move.count, "move"), FormatDuration(move.ns));
  }
  Table stalls({},
               {{"cause"}, {"count"}, {"ns"}, {"busiest"}, {"busiest_share"}});
  for (size_t i = 0; i < one.stalls.size(); ++i) {
    const StallStatistics& stall = one.stalls[i];
    const std::string_view cause = RunCauseName(stall.cause);
    stalls.Add({cause, stall.count, stall.ns,
                stall.busiest ? Value(LinkName(*stall.busiest)) : Value(),
                stall.busiest_share});
    doc->Line({"stall", one.chunk, cause, stall.count, stall.ns});
    text += fmt::format("  waited for {} in {}: {}\n", FormatDuration(stall.ns),
                        Plural(stall.count, "wait"), WaitText(stall.cause));
    if (!one.hints[i].empty()) text += fmt::format("    {}\n", one.hints[i]);
  }
  if (one.stalls.empty()) text += "  nobody waited for it\n";
  doc->Gap();
  doc->Text(std::move(text));
  const auto stay = [](const Residency& there) {
    return Fields({{"begin_ns", there.time.begin},
                   {"end_ns", there.time.end},
                   {"fetched", RunCauseName(there.fetched)},
                   {"released", RunCauseName(there.released)}});
  };
  return Fields({{"chunk", one.chunk},
                 {"chunk_bytes", one.bytes},
                 {"params", one.params},
                 {"resident_share", one.resident_share},
                 {"fetched", CountsJson(one.fetched)},
                 {"released", CountsJson(one.released)},
                 {"over_step", ListOf(one.over_step)},
                 {"step", ListOf(one.last_step, stay)},
                 {"moves", moves.Json()},
                 {"stalls", stalls.Json()}});
}

}  // namespace

Document ExplainedRunDocument(const std::string& file,
                              const ExplainedRun& run) {
  Document doc("castor.run-explanation/1");
  doc.Set("file", file);
  doc.Set("ranks", run.ranks);
  doc.Set("first_step", run.first_step);
  doc.Set("last_step", run.last_step);
  doc.Set("shown_step", run.shown_step);
  doc.Set("shown_ns", run.shown_ns);
  doc.Text(fmt::format(
      "{}: {}, {}\n", Shown(file), Plural(run.ranks, "rank"),
      run.first_step == run.last_step
          ? fmt::format("step {}", run.first_step)
          : fmt::format("steps {} to {}", run.first_step, run.last_step)));
  doc.Set("chunks", ListOf(run.chunks, [&](const ExplainedRunChunk& one) {
            return AddChunk(run, one, &doc);
          }));
  return doc;
}

}  // namespace castor
