// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/search_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/search_mode.h"
#include "chunk/search_result.h"
#include "tools/cli/size_text.h"
#include "tools/cli/text_forms.h"
#include "tools/commands/search/search_transfer.h"
#include "tools/rules/compatibility_rule.h"

namespace castor {
namespace {

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

template <typename Cost>
size_t Least(const std::vector<ChunkSizeCandidate>& candidates, Cost cost) {
  size_t least = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    if (cost(candidates[i]) < cost(candidates[least])) least = i;
  }
  return least;
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
  std::vector<size_t> noted;
  std::vector<size_t> others;
  for (size_t i = 0; i < notes.size(); ++i) {
    (notes[i].rank < Note::kPlain ? noted : others).push_back(i);
  }
  std::sort(noted.begin(), noted.end(), [&notes](size_t a, size_t b) {
    return notes[a].rank != notes[b].rank ? notes[a].rank < notes[b].rank
                                          : a < b;
  });
  if (noted.size() > room) noted.resize(room);
  std::vector<size_t> rows = noted;
  const size_t left = room - noted.size();
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

// The table of one group, with a column for time where that is known.
class CandidateRows {
 public:
  CandidateRows(const SearchReport& report, const GroupSearchResult& group)
      : report_(report), group_(group), table_(Columns(report)) {}

  void Add(std::string_view mode, const ChunkSizeCandidate& c,
           const std::string& note,
           TextTable::Mark mark = TextTable::Mark::kNone) {
    std::vector<std::string> cells = {std::string(mode),
                                      FormatSize(c.chunk_bytes),
                                      Grouped(c.chunk_size.count()),
                                      Grouped(c.chunks),
                                      FormatSize(c.waste_bytes),
                                      ShareOf(c.waste_fraction),
                                      FormatSize(c.gathered_bytes)};
    if (report_.machine) {
      const std::optional<double> seconds = KnownSeconds(TransferCost(
          *report_.machine, group_, c, report_.options.pack.world));
      cells.push_back(seconds ? SecondsText(*seconds) : "");
    }
    cells.push_back(note);
    table_.AddRow(std::move(cells), mark);
  }

  std::string Render(Emphasis emphasis) const {
    return table_.Render(emphasis);
  }

 private:
  static std::vector<TextTable::Column> Columns(const SearchReport& report) {
    using Align = TextTable::Align;
    std::vector<TextTable::Column> columns = {{"mode", Align::kLeft},
                                              {"chunk"},
                                              {"elements"},
                                              {"chunks"},
                                              {"waste"},
                                              {"%"},
                                              {"gathered"}};
    if (report.machine) columns.push_back({"time"});
    columns.push_back({"note", Align::kLeft});
    return columns;
  }

  static std::string ShareOf(double fraction) {
    std::string text = Percent(fraction);
    text.resize(text.size() - 2);  // the column's title says what it is
    return text;
  }

  const SearchReport& report_;
  const GroupSearchResult& group_;
  TextTable table_;
};

}  // namespace

std::string CandidateTable(const SearchReport& report, size_t group,
                           size_t rows, Emphasis emphasis) {
  const GroupSearchResult& found = report.result.groups[group];
  CandidateRows table(report, found);
  const std::vector<Note> notes = NotesOf(found, report.options.min_chunk);
  const std::vector<size_t> shown = RowsOf(notes, rows);
  for (const size_t i : shown) {
    const ChunkSizeCandidate& c = found.candidates[i];
    table.Add(SearchModeName(c.mode), c, notes[i].text,
              SameChoice(c, found.recommended) ? TextTable::Mark::kChosen
                                               : TextTable::Mark::kNone);
  }
  if (report.choice && report.choice->pick == ChoicePick::kChunk) {
    table.Add("--chunk", report.choice->groups[group], "as given");
  }
  for (const RuleReport& rule : report.rules) {
    if (rule.in_castor.empty()) continue;
    table.Add(
        CompatibilityRuleName(rule.rule.rule), rule.in_castor[group],
        fmt::format("its rule claims {}", Percent(rule.rule.claimed_fraction)));
  }
  std::string text = table.Render(emphasis);
  if (shown.size() < found.candidates.size()) {
    text += fmt::format("  ... and {} more: --plain or --json\n",
                        found.candidates.size() - shown.size());
  }
  return text;
}

}  // namespace castor
