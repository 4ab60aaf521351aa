// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/explain/explain_run_forms.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <string_view>

#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/report/strip.h"

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

std::string LastStepText(const ExplainedRun& run,
                         const ExplainedRunChunk& one) {
  constexpr size_t kShown = 8;
  std::string text;
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
  if (text.empty()) return text;
  return fmt::format("  whole on the device in step {}, of {}:\n{}",
                     run.shown_step, FormatDuration(run.shown_ns), text);
}

std::string ChunkText(const ExplainedRun& run, const ExplainedRunChunk& one) {
  std::string text =
      fmt::format("\nchunk {}, {}: {}\n", one.chunk,
                  FormatSize(Bytes(one.bytes)), Quoted(one.params));
  text += fmt::format("  gathered for {} of the time  |{}|\n",
                      Percent(one.resident_share),
                      DrawStrip(one.over_step, StripInk::kAscii));
  text += fmt::format("  came {}\n  went {}\n", CountsText(one.fetched),
                      CountsText(one.released));
  text += LastStepText(run, one);
  for (const ChunkMoves& move : one.moves) {
    text += fmt::format("  {} {}: {} in {}, {} under way\n",
                        StateKindName(move.state), LinkName(move.link),
                        FormatSize(Bytes(move.bytes)),
                        Plural(move.count, "move"), FormatDuration(move.ns));
  }
  for (size_t i = 0; i < one.stalls.size(); ++i) {
    const StallStatistics& stall = one.stalls[i];
    text += fmt::format("  waited for {} in {}: {}\n", FormatDuration(stall.ns),
                        Plural(stall.count, "wait"), WaitText(stall.cause));
    if (!one.hints[i].empty()) text += fmt::format("    {}\n", one.hints[i]);
  }
  if (one.stalls.empty()) text += "  nobody waited for it\n";
  return text;
}

JsonValue CountsJson(const CountByCause& counts) {
  JsonValue json = JsonValue::Object({});
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    json[RunCauseName(static_cast<RunCause>(c))] = counts[c];
  }
  return json;
}

JsonValue ChunkJson(const ExplainedRunChunk& one) {
  JsonValue json = JsonValue::Object({{"chunk", one.chunk},
                                      {"chunk_bytes", one.bytes},
                                      {"params", one.params},
                                      {"resident_share", one.resident_share},
                                      {"fetched", CountsJson(one.fetched)},
                                      {"released", CountsJson(one.released)}});
  JsonValue& over = json["over_step"] = JsonValue::Array();
  for (const double share : one.over_step) over.Append(share);
  JsonValue& step = json["step"] = JsonValue::Array();
  for (const Residency& there : one.last_step) {
    step.Append(
        JsonValue::Object({{"begin_ns", there.time.begin},
                           {"end_ns", there.time.end},
                           {"fetched", RunCauseName(there.fetched)},
                           {"released", RunCauseName(there.released)}}));
  }
  JsonValue& moves = json["moves"] = JsonValue::Array();
  for (const ChunkMoves& move : one.moves) {
    moves.Append(JsonValue::Object({{"state", StateKindName(move.state)},
                                    {"link", LinkName(move.link)},
                                    {"count", move.count},
                                    {"causes", CountsJson(move.count_by_cause)},
                                    {"moved_bytes", move.bytes},
                                    {"ns", move.ns}}));
  }
  JsonValue& stalls = json["stalls"] = JsonValue::Array();
  for (const StallStatistics& stall : one.stalls) {
    stalls.Append(JsonValue::Object(
        {{"cause", RunCauseName(stall.cause)},
         {"count", stall.count},
         {"ns", stall.ns},
         {"busiest",
          stall.busiest ? JsonValue(LinkName(*stall.busiest)) : JsonValue()},
         {"busiest_share", stall.busiest_share}}));
  }
  return json;
}

}  // namespace

std::string ExplainedRunText(const std::string& file, const ExplainedRun& run) {
  std::string text = fmt::format(
      "{}: {}, {}\n", Shown(file), Plural(run.ranks, "rank"),
      run.first_step == run.last_step
          ? fmt::format("step {}", run.first_step)
          : fmt::format("steps {} to {}", run.first_step, run.last_step));
  for (const ExplainedRunChunk& one : run.chunks) text += ChunkText(run, one);
  return text;
}

JsonValue ExplainedRunJson(const std::string& file, const ExplainedRun& run) {
  JsonValue json;
  json["schema"] = "castor.run-explanation/1";
  json["file"] = file;
  json["ranks"] = run.ranks;
  json["first_step"] = run.first_step;
  json["last_step"] = run.last_step;
  json["shown_step"] = run.shown_step;
  json["shown_ns"] = run.shown_ns;
  json["chunks"] = JsonValue::Array();
  for (const ExplainedRunChunk& one : run.chunks) {
    json["chunks"].Append(ChunkJson(one));
  }
  return json;
}

std::string ExplainedRunPlain(const ExplainedRun& run) {
  std::string text;
  for (const ExplainedRunChunk& one : run.chunks) {
    text += fmt::format("chunk\t{}\t{}\t{:.6f}\t{}\n", one.chunk, one.bytes,
                        one.resident_share, Quoted(one.params));
    for (const ChunkMoves& move : one.moves) {
      text += fmt::format("moves\t{}\t{}\t{}\t{}\t{}\t{}\n", one.chunk,
                          StateKindName(move.state), LinkName(move.link),
                          move.count, move.bytes, move.ns);
    }
    for (const StallStatistics& stall : one.stalls) {
      text += fmt::format("stall\t{}\t{}\t{}\t{}\n", one.chunk,
                          RunCauseName(stall.cause), stall.count, stall.ns);
    }
  }
  return text;
}

}  // namespace castor
