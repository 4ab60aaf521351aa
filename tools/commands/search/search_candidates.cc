// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "placement/machine/step_cost.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/search/search_document.h"

namespace castor {
namespace {

using Mark = Table::Mark;

// Of the links whose speed is known the slowest, all working at the same time.
std::optional<double> KnownSeconds(const StepCost& cost) {
  std::optional<double> slowest;
  for (const std::optional<double>& seconds : cost.link_seconds) {
    if (seconds) slowest = std::max(slowest.value_or(0), *seconds);
  }
  return slowest;
}

// Of what is known of a candidate, for the page and for --plain.
Table EmptyTable(const SearchReport& report) {
  return Table({.header = true}, {Table::PlainOnly("group"),
                                  {"mode", "mode"},
                                  {"", "chunk"},
                                  {"chunk_elements", "elements"},
                                  {"chunk_bytes"},
                                  {"chunks", "chunks"},
                                  {"oversize_chunks"},
                                  {"allocated_elements"},
                                  {"waste_elements"},
                                  {"waste_bytes", "waste"},
                                  {"waste_fraction", "%"},
                                  {"gathered_bytes", "gathered"},
                                  {"", report.machine ? "time" : ""},
                                  {"reason"},
                                  {"", "note"}});
}

// `mode` and `note` are for the page.
void AddRow(const SearchReport& report, size_t g, const ChunkSizeCandidate& c,
            Table* table, std::string_view mode = "",
            std::string_view note = "", Mark mark = Mark::kNone) {
  const GroupSearchResult& group = report.result.groups[g];
  Value time;
  if (report.machine) {
    time =
        Value::Seconds(KnownSeconds(TransferCost(report.findings(), group, c)));
  }
  table->Add(
      {GroupName(group), Value(SearchModeName(c.mode)).As(std::string(mode)),
       c.chunk_bytes, c.chunk_size, c.chunk_bytes, c.chunks, c.oversize_chunks,
       c.allocated, c.waste, c.waste_bytes, ShareCell(c.waste_fraction),
       c.gathered_bytes, time, c.reason, note},
      mark);
}

// What speaks for a candidate, and how soon it is shown where rows are few.
struct Note {
  std::string text;
  int rank = kPlain;  // the lower, the sooner

  static constexpr int kPlain = 9;
  void Add(int new_rank, std::string_view words) {
    if (!text.empty()) text += ", ";
    text += words;
    rank = std::min(rank, new_rank);
  }
};

// The index of the first with the least cost.
template <typename Cost>
size_t Least(const std::vector<ChunkSizeCandidate>& candidates, Cost cost) {
  const auto least = std::min_element(
      candidates.begin(), candidates.end(),
      [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  return static_cast<size_t>(least - candidates.begin());
}

std::vector<Note> NotesOf(const GroupSearchResult& group, Bytes min_chunk) {
  const auto& candidates = group.candidates;
  const size_t fewest =
      Least(candidates, [](const auto& c) { return c.chunks; });
  const size_t lightest =
      Least(candidates, [](const auto& c) { return c.gathered_bytes; });
  std::vector<Note> notes(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const ChunkSizeCandidate& c = candidates[i];
    Note& note = notes[i];
    const bool best = SameChoice(c, group.best);
    if (best) note.Add(0, "best");
    if (SameChoice(c, group.recommended)) note.Add(0, "recommended");
    for (const ModeResult& mode : group.modes) {
      if (!best && SameChoice(c, mode.best)) {
        note.Add(1, fmt::format("best {}", SearchModeName(mode.mode)));
      }
    }
    if (c.mode == SearchMode::kUniform && c.chunk_bytes < min_chunk) {
      note.Add(2, "whole group");
    }
    if (i == fewest && candidates.size() > 1) note.Add(2, "fewest chunks");
    if (i == lightest && candidates.size() > 1) note.Add(2, "least gathered");
  }
  return notes;
}

// Which to show: those with a note, the more important ones first, and as many
// of the others, evenly spread, as there is room for.
std::vector<size_t> RowsOf(const std::vector<Note>& notes, size_t room) {
  std::vector<size_t> rows;
  std::vector<size_t> others;
  for (size_t i = 0; i < notes.size(); ++i) {
    (notes[i].rank < Note::kPlain ? rows : others).push_back(i);
  }
  std::sort(rows.begin(), rows.end(), [&notes](size_t a, size_t b) {
    return std::tie(notes[a].rank, a) < std::tie(notes[b].rank, b);
  });
  if (rows.size() > room) rows.resize(room);
  const size_t left = room - rows.size();
  const size_t n = others.size();
  for (size_t i = 0; i < n; ++i) {
    // The i-th of n is shown when the running share of `left` reaches one more.
    if (n <= left || (i + 1) * left / n > i * left / n) {
      rows.push_back(others[i]);
    }
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

Value ShareCell(double share) {
  std::string text = Percent(share);
  text.resize(text.size() - 2);
  return Value::Share(share).As(text);
}

Table AllCandidates(const SearchReport& report) {
  Table table = EmptyTable(report);
  for (size_t g = 0; g < report.result.groups.size(); ++g) {
    for (const ChunkSizeCandidate& c : report.result.groups[g].candidates) {
      AddRow(report, g, c, &table);
    }
  }
  return table;
}

int64_t AddCandidates(const SearchReport& report, size_t group, size_t rows,
                      Document* doc) {
  const GroupSearchResult& found = report.result.groups[group];
  Table table = EmptyTable(report);
  const std::vector<Note> notes = NotesOf(found, report.search.min_chunk);
  const std::vector<size_t> shown = RowsOf(notes, rows);
  for (const size_t i : shown) {
    const ChunkSizeCandidate& c = found.candidates[i];
    AddRow(report, group, c, &table, SearchModeName(c.mode), notes[i].text,
           SameChoice(c, found.recommended) ? Mark::kChosen : Mark::kNone);
  }
  if (report.choice && report.request.chunk) {
    AddRow(report, group, report.choice->groups[group], &table, "--chunk",
           "as given");
  }
  if (report.rule) {
    AddRow(report, group, report.rule->in_castor[group], &table, "gemini",
           fmt::format("its rule claims {}",
                       Percent(report.rule->rule.claimed_fraction)));
  }
  doc->Add(std::move(table), Form::kPage);
  return std::ssize(found.candidates) - std::ssize(shown);
}

void SayMachine(const SearchReport& report, Document* doc) {
  if (!report.machine) return;
  std::vector<std::string> known;
  std::vector<std::string> unknown;
  for (const StepLink link : kStepLinkOrder) {
    // One rank has nobody to exchange with.
    if (report.search.pack.world == 1 && IsRing(link)) continue;
    std::string name(StepLinkName(link));
    std::replace(name.begin(), name.end(), '_', ' ');
    const std::optional<LinkModel> speed = SpeedOf(*report.machine, link);
    if (!speed) {
      unknown.push_back(name);
      continue;
    }
    known.push_back(
        fmt::format("{} {:.4g} GB/s + {}", name,
                    static_cast<double>(speed->bytes_per_second) / 1e9,
                    FormatDuration(speed->latency_ns)));
  }
  std::string text =
      "time is a step's transfers on the slowest link, all shards at home in "
      "host memory";
  if (!known.empty()) text += ": " + JoinedWithAnd(known);
  if (!unknown.empty()) {
    text += fmt::format("; unknown and left out: {}", JoinedWithAnd(unknown));
  }
  doc->Say("Machine", text);
}

}  // namespace castor
