// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "chunk/base/quote.h"
#include "chunk/base/units.h"
#include "placement/run_event.h"
#include "tools/cli/duration_text.h"
#include "tools/cli/size_text.h"
#include "tools/report/arena_sums.h"
#include "tools/report/plan_statistics.h"
#include "tools/report/strip.h"

namespace castor {
namespace {

constexpr size_t kNameWidth = 16;

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string Percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string Size(int64_t bytes) { return FormatSize(Bytes(bytes)); }

class Writer {
 public:
  Writer(const RunStatistics& run, const TextOptions& options)
      : run_(run), options_(options) {}

  std::string Write(std::string_view name) {
    Facts(name);
    if (run_.steps.empty()) {
      Line("\nNo step of a run is in the record.");
      return std::move(out_);
    }
    Steps();
    Shares();
    Tiers();
    Arenas();
    Links();
    Stalls();
    Plan();
    return std::move(out_);
  }

 private:
  template <typename... T>
  void Add(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(out_), format,
                   std::forward<T>(values)...);
  }
  template <typename... T>
  void Line(fmt::format_string<T...> format, T&&... values) {
    Add(format, std::forward<T>(values)...);
    out_ += '\n';
  }

  void Facts(std::string_view name) {
    Add("{}: ", name);
    if (run_.stage >= 0) {
      Add("{} rank{}{}, ZeRO stage {}, {} chunk{} of up to {}, ",
          run_.ranks.size(), run_.ranks.size() == 1 ? "" : "s",
          static_cast<int64_t>(run_.ranks.size()) == run_.world
              ? ""
              : fmt::format(" of {}", run_.world),
          run_.stage, run_.chunks, run_.chunks == 1 ? "" : "s",
          Size(run_.chunk_bytes));
    }
    Line("{} events, {} dropped, {}", run_.events, run_.dropped,
         Size(run_.file_bytes));
  }

  void Steps() {
    const size_t shown = run_.steps.size();
    Add("\n{:<{}}", StepsName(), kNameWidth + 2);
    if (run_.complete_steps == 0) {
      Line("none of {} is complete", shown);
      return;
    }
    Line("{:>11}{:>11}{:>11}", "min", "median", "max");
    SpreadLine("time", run_.step_ns, FormatDuration);
    SpreadLine("stalled", run_.stalled_ns, FormatDuration);
    for (size_t i = 0; i < run_.links.size(); ++i) {
      if (run_.link_bytes[i].max == 0) continue;
      SpreadLine(LinkName(run_.links[i].link), run_.link_bytes[i], Size);
    }
    if (run_.complete_steps < static_cast<int64_t>(shown)) {
      Line("  {} of {} steps are complete, the others are left out here",
           run_.complete_steps, shown);
    }
  }

  std::string StepsName() const {
    const int32_t first = run_.steps.front().step;
    const int32_t last = run_.steps.back().step;
    return first == last ? fmt::format("Step {}", first)
                         : fmt::format("Steps {}-{}", first, last);
  }

  template <typename Format>
  void SpreadLine(std::string_view name, const Spread& spread, Format format) {
    Add("  {:<{}}{:>11}{:>11}{:>11}", name, kNameWidth, format(spread.min),
        format(spread.median), format(spread.max));
    if (spread.max > spread.min) Add("  (step {})", spread.max_step);
    out_ += '\n';
  }

  void Shares() {
    const RankStatistics& all = run_.all_ranks;
    const auto whole = static_cast<double>(all.step_ns);
    const double stalled = Ratio(static_cast<double>(all.stalled_ns), whole);
    Add("\nTime in steps: computing {}, stalled {}", Percent(1 - stalled),
        Percent(stalled));
    if (all.updating_ns > 0) {
      Add("; optimizer at work {}",
          Percent(Ratio(static_cast<double>(all.updating_ns), whole)));
    }
    if (all.moving_ns > 0) {
      Add("; moves hidden behind computing {}",
          Percent(1 - Ratio(static_cast<double>(all.unhidden_ns),
                            static_cast<double>(all.moving_ns))));
    }
    out_ += '\n';
    if (run_.copies > 0) {
      Line(
          "Chunks made whole on a device: {} times, {} ahead of use; steps "
          "that departed from the recorded one: {}",
          run_.copies,
          Percent(Ratio(static_cast<double>(run_.prefetched_copies),
                        static_cast<double>(run_.copies))),
          run_.divergences);
    }
    if (run_.ranks.size() > 1) RankSkew();
  }

  void RankSkew() {
    const auto share = [](const RankStatistics& rank) {
      return Ratio(static_cast<double>(rank.stalled_ns),
                   static_cast<double>(rank.step_ns));
    };
    const auto [least, most] = std::minmax_element(
        run_.ranks.begin(), run_.ranks.end(),
        [&](const RankStatistics& a, const RankStatistics& b) {
          return share(a) < share(b);
        });
    Line("Ranks: stalled most, rank {}: {}; least, rank {}: {}", most->rank,
         Percent(share(*most)), least->rank, Percent(share(*least)));
  }

  void Tiers() {
    if (run_.tiers.empty()) return;
    Line("\nTiers over a step (full: the budget, or else the peak)");
    for (const TierStatistics& tier : run_.tiers) {
      const int64_t full =
          tier.budget_bytes > 0 ? tier.budget_bytes : tier.peak_bytes;
      std::vector<double> shares = tier.over_step;
      for (double& share : shares) {
        share = Ratio(share, static_cast<double>(full));
      }
      Add("  {:<{}}|{}|  peak {}", TierName(tier.tier), kNameWidth,
          Strip(shares), Size(tier.peak_bytes));
      if (tier.budget_bytes > 0) {
        Line(" of {}, {}", Size(tier.budget_bytes),
             Percent(Ratio(static_cast<double>(tier.peak_bytes),
                           static_cast<double>(tier.budget_bytes))));
      } else {
        Line(", no budget given");
      }
    }
  }

  // One line for the arenas of one name and allocator, over ranks.
  void Arenas() {
    if (run_.arenas.empty()) return;
    Line("\n{:<{}}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>9}", "Pinned arenas",
         kNameWidth + 2, "peak", "budget", "live", "active", "resident",
         "retained", "refused");
    for (const ArenaSum& sum : SumArenas(run_.arenas)) {
      Line("  {:<{}}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>9}  {}, {} rank{}{}",
           Bare(sum.name), kNameWidth, Size(sum.peak), Size(sum.budget),
           Size(sum.live), Size(sum.active), Size(sum.resident),
           Size(sum.retained), sum.refused, Bare(sum.allocator), sum.ranks,
           sum.ranks == 1 ? "" : "s", sum.locked ? "" : ", not locked");
    }
  }

  void Links() {
    if (run_.links.empty()) return;
    Line("\n{:<{}}{:>11}{:>9}{:>9}", "Links over a step (full: busy)",
         kNameWidth + 4 + Parts(), "bytes", "busy", "GB/s");
    for (const LinkStatistics& link : run_.links) {
      Line("  {:<{}}|{}|{:>11}{:>9}{:>9.2f}", LinkName(link.link), kNameWidth,
           Strip(link.over_step), Size(link.bytes), Percent(link.busy_share),
           link.gigabytes_per_second());
    }
    int64_t outside_bytes = 0;
    for (const LinkStatistics& link : run_.links) {
      outside_bytes += link.outside_bytes;
    }
    if (outside_bytes > 0) {
      Line("  before the first step or after the last, not counted above: {}",
           Size(outside_bytes));
    }
  }

  void Stalls() {
    if (run_.stalls.empty()) {
      Line("\nNo stalls.");
      return;
    }
    Line("\nStalls, waited for{:>10}{:>10}{:>8}  {}", "time", "of steps",
         "count", "worst chunks");
    for (const StallStatistics& stall : run_.stalls) {
      Add("  {:<{}}{:>10}{:>10}{:>8}", RunCauseName(stall.cause), kNameWidth,
          FormatDuration(stall.ns),
          Percent(Ratio(static_cast<double>(stall.ns),
                        static_cast<double>(run_.all_ranks.step_ns))),
          stall.count);
      std::string_view separator = "  ";
      for (const ChunkStall& chunk : stall.worst) {
        Add("{}{} ({})", separator, chunk.chunk, FormatDuration(chunk.ns));
        separator = ", ";
      }
      out_ += '\n';
      if (!stall.worst.empty() && !stall.worst.front().params.empty()) {
        Line("      chunk {}: {}", stall.worst.front().chunk,
             Shortened(stall.worst.front().params));
      }
      const std::string hint =
          StallHint(stall, run_.divergences, run_.steps.back().step);
      if (!hint.empty()) Line("      {}", hint);
    }
  }

  // What the plan's fetches cost, and what a slot is worth.
  void Plan() {
    if (!run_.plan) return;
    Line("\nPlan after step {}: what is fetched in a step, by {}",
         run_.plan->step,
         run_.plan->in_seconds ? "the time that measured links take"
                               : "the links that it crosses");
    for (const SlotWorth& each : run_.plan->slots) {
      Add("  {} slot{} of {}: {}, {}", each.slots, each.slots == 1 ? "" : "s",
          Size(each.slot_bytes), Cost(each.cost),
          each.optimal ? "proved the least"
                       : fmt::format("at least {} whatever the plan",
                                     Cost(each.lower_bound)));
      if (each.shard_slots > 0) {
        Add("; {} of them hold{} copies of up to {} shards", each.shard_slots,
            each.shard_slots == 1 ? "s" : "", each.shards);
      }
      if (each.one_more_saves && *each.one_more_saves == 0) {
        Add("; one more would save nothing");
      } else if (each.one_more_saves) {
        Add("; one more saves at most {}, one less costs at least {}",
            Cost(*each.one_more_saves), Cost(*each.one_less_costs));
      }
      if (each.dearest_first >= 0) {
        Add("; dearest at moments {} to {} of {}", each.dearest_first,
            each.dearest_last, run_.plan->moments);
      }
      out_ += '\n';
    }
  }

  std::string Cost(double cost) const {
    constexpr double kMostSeconds = 1e9;
    if (run_.plan->in_seconds && cost < kMostSeconds) {
      return FormatDuration(static_cast<int64_t>(cost * 1e9));
    }
    return fmt::format("{:.4g}{}", cost, run_.plan->in_seconds ? " s" : "");
  }

  // A name that cannot talk to the terminal needs no quotes.
  static std::string Bare(const std::string& name) {
    const bool plain = name.size() <= 32 &&
                       std::all_of(name.begin(), name.end(),
                                   [](char c) { return c >= ' ' && c <= '~'; });
    return plain ? name : Shortened(name);
  }

  // Names come from a file: they must not talk to the terminal.
  static std::string Shortened(std::string_view params) {
    constexpr size_t kMost = 60;
    if (params.size() <= kMost) return Quoted(params);
    return Quoted(fmt::format("{}...", params.substr(0, kMost)));
  }

  size_t Parts() const {
    return run_.links.empty() ? 0 : run_.links.front().over_step.size();
  }

  std::string Strip(std::span<const double> shares) const {
    return DrawStrip(shares, options_.ink);
  }

  const RunStatistics& run_;
  const TextOptions& options_;
  std::string out_;
};

}  // namespace

std::string ReportText(std::string_view name, const RunStatistics& statistics,
                       const TextOptions& options) {
  return Writer(statistics, options).Write(name);
}

}  // namespace castor
