// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/did_you_mean.h"
#include "chunk/text/glob.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/sealing/run_chunks.h"
#include "offload/record/record_reader.h"
#include "placement/run_event.h"
#include "tools/cli/flags.h"
#include "tools/cli/progress.h"
#include "tools/cli/text/document.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/file_kind.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/plan/plan_request.h"
#include "tools/commands/registry.h"
#include "tools/report/report_document.h"
#include "tools/report/statistics/intervals.h"
#include "tools/report/statistics/run_files.h"
#include "tools/report/statistics/run_setup.h"
#include "tools/report/statistics/run_statistics.h"
#include "tools/report/statistics/run_times.h"

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
    "at the start",
    "for a guess of the update"};

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

// `params` by chunk: the names of its parameters.
Result<std::vector<int32_t>> MatchingChunks(
    std::span<const std::vector<std::string>> params,
    const std::string& pattern) {
  const Glob glob(pattern);
  std::vector<int32_t> matching;
  std::vector<std::string> known;
  for (size_t c = 0; c < params.size(); ++c) {
    std::vector<std::string> names = params[c];
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
      "{} matches no parameter in the record of {} chunks; chunk.N names a "
      "chunk by its number{}",
      Quoted(pattern), params.size(),
      nearest ? fmt::format("; the nearest name is {}", Quoted(*nearest))
              : std::string()));
}

// Where chunks of a recorded run were over its steps, what was moved of them
// and why, and who waited for them. Lines of --plain:
//   chunk  CHUNK  BYTES  RESIDENT_SHARE  PARAMETERS
//   home   CHUNK  STATE  TIER  BYTES  WHY
//   moves  CHUNK  STATE  LINK  COUNT  BYTES  NS
//   stall  CHUNK  CAUSE  COUNT  NS
class RunExplainer {
 public:
  // REQUIRES: a rank is described, and some of `steps` are in the record.
  RunExplainer(const RunRecord& record, const RunSetup& setup,
               const StepRange& steps)
      : record_(record),
        setup_(setup),
        steps_(steps),
        windows_(FindStepWindows(record, steps)),
        links_(ComputeLinkStatistics(record, windows_, steps, kParts)),
        residencies_(FindResidencies(record.events)),
        others_(record) {
    std::erase_if(others_.events, [](const RunEvent& event) {
      return event.kind == RunEventKind::kStall;
    });
    for (const StepWindow& window : windows_) {
      if (window.complete && window.rank == windows_.front().rank) {
        shown_ = window;
      }
    }
  }

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
    doc_.Gap();
    doc_.Text(fmt::format("chunk {}, {}: {}\n", chunk,
                          FormatSize(Bytes(info.bytes)),
                          Quoted(FewNames(info.params))));
    json["homes"] = AddHomes(chunk);
    std::vector<Residency> stays;
    std::copy_if(
        residencies_.begin(), residencies_.end(), std::back_inserter(stays),
        [chunk](const Residency& stay) { return stay.chunk == chunk; });
    const double share = AddStays(stays, &json);
    doc_.Line({"chunk", chunk, info.bytes, fmt::format("{:.6f}", share),
               Quoted(info.params)});
    json["step"] = AddLastStep(stays);
    json["moves"] = AddMoves(chunk);
    json["stalls"] = AddStalls(chunk);
    return json;
  }

  // Where its states were at home on the lowest rank, and why.
  JsonValue AddHomes(int32_t chunk) {
    JsonValue list = JsonValue::Array();
    const std::span<const HomesOfChunk> homes =
        setup_.HomesIn(record_.ranks.front().rank, windows_.back().step);
    const auto index = static_cast<size_t>(chunk);
    if (index >= homes.size()) return list;
    const StateNames names = record_.states();
    for (size_t k = 0; k < kStateKinds; ++k) {
      const std::optional<StateHome>& home = homes[index][k];
      if (!home) continue;
      const std::string_view state = names.of(static_cast<StateKind>(k));
      const std::string_view tier = TierName(home->tier);
      list.Append(Fields({{"state", state},
                          {"tier", tier},
                          {"home_bytes", home->bytes},
                          {"why", home->why}}));
      doc_.Line({"home", chunk, state, tier, home->bytes, home->why});
      doc_.Text(fmt::format("  {}\n", Shown(home->why)));
    }
    return list;
  }

  // For how much of the steps' time a gathered copy was there, on all ranks; a
  // chunk that is at home on the device has none.
  double AddStays(const std::vector<Residency>& stays, JsonValue* json) {
    std::vector<double> over_step(kParts, 0);
    int64_t whole_ns = 0;
    int64_t there_ns = 0;
    const double weight = 1 / static_cast<double>(windows_.size());
    for (const StepWindow& window : windows_) {
      whole_ns += window.time.length();
      std::vector<Interval> times;
      for (const Residency& stay : stays) {
        if (stay.rank == window.rank) times.push_back(stay.time);
      }
      const IntervalSet there =
          Intersection(Union(std::move(times)), {window.time});
      there_ns += Length(there);
      AddShares(there, window.time, weight, over_step);
    }
    CountByCause fetched = {};
    CountByCause released = {};
    for (const Residency& stay : stays) {
      if (!steps_.Holds(stay.step)) continue;
      ++fetched[static_cast<size_t>(stay.fetched)];
      ++released[static_cast<size_t>(stay.released)];
    }
    const double share =
        static_cast<double>(there_ns) / static_cast<double>(whole_ns);
    (*json)["resident_share"] = share;
    (*json)["fetched"] = ByCauseJson(fetched);
    (*json)["released"] = ByCauseJson(released);
    (*json)["over_step"] = ListOf(over_step);
    doc_.Text(fmt::format(
        "  gathered for {} of the time  |{}|\n  came {}\n  went {}\n",
        Percent(share), DrawStrip(over_step, StripInk::kAscii),
        CountsText(fetched), CountsText(released)));
    return share;
  }

  // The copies that were there in the last step that is complete, on the lowest
  // rank, in time since that step began; those that were there before it begin
  // at 0.
  JsonValue AddLastStep(std::vector<Residency> stays) {
    constexpr size_t kMostStays = 8;
    Table table({}, {{"begin_ns"}, {"end_ns"}, {"fetched"}, {"released"}});
    std::erase_if(stays, [this](const Residency& stay) {
      return !shown_ || stay.rank != shown_->rank ||
             stay.time.end <= shown_->time.begin ||
             stay.time.begin >= shown_->time.end;
    });
    if (stays.empty()) return table.Json();
    doc_.Text(fmt::format("  whole on the device in step {}, of {}:\n",
                          shown_->step, FormatDuration(shown_->time.length())));
    for (size_t i = 0; i < stays.size(); ++i) {
      const Residency& stay = stays[i];
      const int64_t begin =
          std::max<int64_t>(stay.time.begin - shown_->time.begin, 0);
      const int64_t end = stay.time.end - shown_->time.begin;
      table.Add({begin, end, RunCauseName(stay.fetched),
                 RunCauseName(stay.released)});
      if (i >= kMostStays) continue;
      doc_.Text(fmt::format(
          "    {:>9} to {:>9}  came {}, {}{}\n", FormatDuration(begin),
          FormatDuration(end), CauseText(stay.fetched),
          stay.released == RunCause::kNone ? "and stayed" : "went ",
          stay.released == RunCause::kNone ? "" : CauseText(stay.released)));
    }
    if (stays.size() > kMostStays) {
      doc_.Text(
          fmt::format("    and {} more times\n", stays.size() - kMostStays));
    }
    return table.Json();
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
    const StateNames names = record_.states();
    for (const auto& [key, move] : moves) {
      const auto& [kind, link_kind, from, to] = key;
      const std::string_view state = names.of(kind);
      const std::string link = LinkName({link_kind, from, to});
      table.Add({state, link, move.count, ByCauseJson(move.by_cause),
                 move.bytes, move.ns});
      doc_.Line({"moves", chunk, state, link, move.count, move.bytes, move.ns});
      doc_.Text(fmt::format("  {} {}: {} in {}, {} under way\n", state, link,
                            FormatSize(Bytes(move.bytes)),
                            Plural(move.count, "move"),
                            FormatDuration(move.ns)));
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
      doc_.Text(
          fmt::format("  waited for {} in {}: {}\n", FormatDuration(stall.ns),
                      Plural(stall.count, "wait"), WaitTitle(stall.cause)));
      const std::string hint =
          StallHint(stall, divergences, windows_.back().step);
      if (!hint.empty()) doc_.Text(fmt::format("    {}\n", hint));
    }
    if (stalls.empty()) doc_.Text("  nobody waited for it\n");
    return table.Json();
  }

  const RunRecord& record_;
  const RunSetup& setup_;
  const StepRange steps_;
  const std::vector<StepWindow> windows_;
  const std::vector<LinkStatistics> links_;
  const std::vector<Residency> residencies_;
  RunRecord others_;  // without stalls
  std::optional<StepWindow> shown_;
  Document doc_{"castor.run-explanation/1"};
};

constexpr char kFooter[] =
    R"(MODEL is what castor plan takes, with the same flags. PATTERN names parameters: * stands for any
characters, and chunk.7 is the chunk of that number. Of every chunk with such a parameter the
page says:
  on which tier each state lives
  which rule, limit or budget put the state there
  what a step moves over which link because of it

The record of a run may stand in place of MODEL (train_gpt --record). The page then says where
the chunk was over a step, what was moved, and who waited for the chunk and why.

Exit code 3: the model does not fit. castor plan says what would.

Examples:
  castor explain ./Llama-3-8B '*.embed*' --device-budget 24GiB --host-budget 64GiB
  castor explain config.json 'h.0.*' --device-budget 8GiB --host-budget 32GiB --place nvme:wte.*
  castor explain run.rec chunk.0 --steps 2-30
)";

class ExplainCommand final : public Command {
 public:
  std::string_view name() const override { return "explain"; }
  std::string_view summary() const override {
    return "why parameters are where they are, by a plan or in a recorded run";
  }

  void Declare(CLI::App& app) override {
    DeclarePlannedFlags(app, &flags_);
    AddPositional(app, "PATTERN", &pattern_,
                  "names of parameters, or chunk.N: see below");
    AddTextFlag(app, "--steps", &steps_,
                "of a run, look at these steps only, for example 2-30");
    AddSwitch(app, "--json", &json_, "print one JSON document");
    AddSwitch(app, "--plain", &plain_, "print tab-separated lines");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const Form form, FormOf(json_, plain_));
    if (KindOfFile(RecordFilesOf(flags_.model).front()) == FileKind::kRecord) {
      return ExplainRecord(form, console);
    }
    if (!steps_.empty()) {
      return InvalidArgument(fmt::format(
          "--steps is for the record of a run, and {} is none; leave it away",
          QuotedPath(flags_.model)));
    }
    return ExplainPlan(form, console);
  }

 private:
  Status ExplainPlan(Form form, const Console& console) {
    Progress progress(console);
    progress.Phase("reading the model");
    CASTOR_ASSIGN_OR_RETURN(const PlanSubject subject, ReadPlanSubject(flags_));
    progress.Phase("planning");
    CASTOR_ASSIGN_OR_RETURN(const PlanOutcome outcome,
                            MakePlan(subject, flags_));
    progress.Finish();
    if (!outcome.fits.ok()) {
      return Infeasible(fmt::format(
          "there is no plan to explain: {}; {} prints the smallest changes "
          "that fit",
          outcome.fits.message(), PlanCommandText(flags_)));
    }
    CASTOR_ASSIGN_OR_RETURN(Document explained,
                            ExplainHomes(subject, outcome, pattern_));
    Document doc("castor.explanation/1");
    doc.Set("command", PlanCommandText(flags_));
    doc.Set("pattern", pattern_);
    doc.Add("", std::move(explained));
    Print(doc, form, console);
    return OkStatus();
  }

  Status ExplainRecord(Form form, const Console& console) {
    PlanFlags none;
    none.model = flags_.model;
    if (PlanCommandText(flags_) != PlanCommandText(none)) {
      return InvalidArgument(fmt::format(
          "{} is the record of a run, which is explained as it was: leave the "
          "flags of a plan away",
          QuotedPath(flags_.model)));
    }
    StepRange steps;
    if (!steps_.empty()) {
      CASTOR_ASSIGN_OR_RETURN(steps, ParseStepRange(steps_));
    }
    CASTOR_ASSIGN_OR_RETURN(const RunRecord record, ReadRun(flags_.model));
    if (record.ranks.empty()) {
      return InvalidArgument(
          "no rank is described in the record, so there are no chunks to "
          "explain: it was cut off at its beginning");
    }
    const RunSetup setup = ReadSetup(record);
    CASTOR_ASSIGN_OR_RETURN(
        const std::vector<int32_t> chunks,
        MatchingChunks(ParamsByChunk(record, setup), pattern_));
    if (FindStepWindows(record, steps).empty()) {
      return InvalidArgument(fmt::format(
          "the record holds none of the steps asked for; its last one is {}",
          LastStep(record)));
    }
    Print(RunExplainer(record, setup, steps).Explain(flags_.model, chunks),
          form, console);
    return record.completeness;
  }

  PlanFlags flags_;
  std::string pattern_;
  std::string steps_;
  bool json_ = false;
  bool plain_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeExplainCommand() {
  return std::make_unique<ExplainCommand>();
}

}  // namespace castor
