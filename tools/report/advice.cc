// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "chunk/base/dtype.h"
#include "chunk/base/stable_sort.h"
#include "chunk/chunk_layout.h"
#include "chunk/text/budget_text.h"
#include "chunk/text/quote.h"
#include "chunk/text/units_text.h"
#include "collectives/sealing/layout_choice.h"
#include "offload/kernels/optimizer_options.h"
#include "placement/placement_rules.h"
#include "tools/cli/text/document.h"
#include "tools/cli/text/text_forms.h"

namespace castor {
namespace {

// Waits that are a smaller part of the steps hold nothing up.
constexpr double kWorthSaying = 0.01;
// A proposal makes a step shorter by so much, beyond what the simulation misses
// of the step that was measured.
constexpr double kWorthDoing = 0.05;
// A simulation that is further off tells nothing.
constexpr double kMostOff = 0.25;
constexpr size_t kWaitedChunks = 4;

std::string NsText(int64_t ns) { return Value::Ns(ns).Page(); }

// Of a stall, without step 1.
int64_t SteadyNs(const StallStatistics& stall) {
  return stall.ns - stall.first_step_ns;
}

// Of a chunk's parameters; it comes from a file, and may be long.
std::string FirstName(std::string_view params) {
  constexpr size_t kMost = 60;
  const std::string_view first = params.substr(0, params.find(','));
  if (first.size() <= kMost) return Shown(first);
  return Shown(first.substr(0, kMost)) + "...";
}

// What holds up whoever waits.
std::string Culprit(const StallStatistics& stall) {
  constexpr double kExplains = 0.5;
  if (stall.busiest && stall.busiest_share >= kExplains) {
    return LinkName(*stall.busiest);
  }
  switch (stall.cause) {
    case RunCause::kOptimizer:
      return "the optimizer";
    case RunCause::kGradient:
      return "lack of slots for gradients";
    default:
      return "fetching late";
  }
}

// Changes of a run, to be simulated.
class Candidates {
 public:
  Candidates(const RunModel& model, const RunStatistics& run) : model_(model) {
    AddHomes(run);
    AddOptions();
    AddBudget("device", model.options.device_budget,
              [](RunModel* m, Bytes b) { m->options.device_budget = b; });
    AddBudget("host", model.options.host_budget,
              [](RunModel* m, Bytes b) { m->options.host_budget = b; });
  }

  const std::vector<Proposal>& all() const { return all_; }

 private:
  // The parameters of what is waited for longest, on faster tiers.
  void AddHomes(const RunStatistics& run) {
    std::map<int32_t, int64_t> waited;
    for (const StallStatistics& stall : run.stalls) {
      for (const ChunkStall& chunk : stall.worst) {
        if (chunk.chunk >= 0) waited[chunk.chunk] += chunk.ns;
      }
    }
    std::vector<std::pair<int64_t, int32_t>> order;
    for (const auto& [chunk, ns] : waited) order.emplace_back(-ns, chunk);
    std::sort(order.begin(), order.end());
    if (order.size() > kWaitedChunks) order.resize(kWaitedChunks);
    for (const auto& [ns, chunk] : order) {
      const std::string name = NameIn(chunk);
      if (name.empty()) continue;
      for (const Tier tier : {Tier::kDevice, Tier::kHost}) AddHome(name, tier);
    }
  }

  // A parameter of the chunk whose name means the same in a pattern, a shell,
  // Python and JSON.
  std::string NameIn(int32_t chunk) const {
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '/' ||
             c == '-';
    };
    for (size_t p = 0; p < model_.params.size(); ++p) {
      const std::string& name = model_.params[p].name;
      if (model_.layout.places()[p].chunk.value() == chunk &&
          std::ranges::all_of(name, plain)) {
        return name;
      }
    }
    return "";
  }

  void AddHome(const std::string& name, Tier tier) {
    const std::string_view where = TierName(tier);
    PlacementRule rule;
    rule.glob = name;
    rule.state = kParamName;
    rule.tier = tier;
    all_.push_back(
        {fmt::format("keep the parameters around {} on {}{}", name,
                     tier == Tier::kHost ? "the host" : "the device",
                     model_.options.home_rules.empty()
                         ? ""
                         : ", by a rule before the others"),
         {{"Python",
           fmt::format(
               R"x(castor.wrap(..., place={{"{}": {{"param": "{}"}}}}))x", name,
               where)},
          {"config",
           fmt::format(
               R"("home_rules": [{{"tier": "{}", "glob": "{}", "state": "param"}}])",
               where, name)},
          {"command", fmt::format("--place {}:{},state=param", where, name)}},
         Bytes(0),
         [rule](RunModel* model) {
           auto& rules = model->options.home_rules;
           rules.insert(rules.begin(), rule);
         }});
  }

  void AddOptions() {
    if (model_.options.policy != PlanPolicy::kPlanned) {
      all_.push_back({"let a plan with a proof choose which copies stay",
                      {{"Python", R"x(castor.wrap(..., policy="planned"))x"},
                       {"config", R"("policy": "planned")"},
                       {"command", "--policy planned"}},
                      Bytes(0),
                      [](RunModel* model) {
                        model->options.policy = PlanPolicy::kPlanned;
                      }});
    }
    for (const int depth : {2, 3, 4, 6, 8}) {
      if (depth == model_.options.prefetch.depth) continue;
      all_.push_back(
          {fmt::format("fetch {} chunks ahead", depth),
           {{"Python",
             fmt::format(R"(castor.wrap(..., config={{"prefetch": {}}}))",
                         depth)},
            {"config", fmt::format(R"("prefetch": {})", depth)},
            {"command", fmt::format("--prefetch {}", depth)}},
           Bytes(0),
           [depth](RunModel* model) {
             model->options.prefetch = {.depth = depth};
           }});
    }
    // A wrapped model counts the norm unless its chunks are updated early.
    if (!model_.trace.step.updates_early && model_.options.clip_norm == 0 &&
        model_.options.loss_scaling.kind == LossScalingKind::kNone) {
      all_.push_back(
          {"update chunks in the backward, where nobody reads or "
           "clips gradients before the step",
           {{"Python", "castor.wrap(..., update_in_backward=True)"},
            {"trainer", "UpdateEarly() before the last backward"}},
           Bytes(0),
           [](RunModel* model) {
             model->options.count_norm = false;
             model->trace.step.updates_early = true;
           }});
    }
    AddGuesses();
    AddMoments();
  }

  // As if groups of large parameters, but for a twentieth, were of them alone;
  // others stay as they are. None: there is no such group.
  std::optional<ChunkLayout> WithMomentsOf8Bits() const {
    constexpr int64_t kPart = 20;
    const ChunkLayout& layout = model_.layout;
    std::vector<GroupInfo> groups = layout.groups();
    std::vector<Elements> all(groups.size());
    std::vector<Elements> small(groups.size());
    for (const ParamPlace& place : layout.places()) {
      if (!place.chunk.valid()) continue;
      const auto group = static_cast<size_t>(layout.chunk(place.chunk).group);
      all[group] += place.size;
      if (place.size < kLeastMoments8) small[group] += place.size;
    }
    bool any = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g].moments8 = groups[g].trainable && small[g] * kPart < all[g];
      any |= groups[g].moments8;
    }
    if (!any) return std::nullopt;
    return ChunkLayout(layout.world(), layout.align(), layout.places(),
                       layout.chunks(), std::move(groups));
  }

  void AddMoments() {
    const OptimizerOptions& optimizer = model_.options.optimizer;
    if (optimizer.kind == OptimizerKind::kCustom || MomentsOf(optimizer) == 0 ||
        IsBlocks8(optimizer.moment_dtype)) {
      return;
    }
    const auto add = [&](std::string_view what, std::string_view python,
                         DType dtype, std::optional<ChunkLayout> layout) {
      const std::string_view name = DTypeName(dtype);
      all_.push_back(
          {fmt::format("keep moments in {}, which changes weights a little",
                       what),
           {{"Python", fmt::format("castor.wrap(..., state_dtype={})", python)},
            {"config",
             fmt::format(R"("optimizer": {{"moment_dtype": "{}"}})", name)}},
           Bytes(0),
           [dtype, layout = std::move(layout)](RunModel* model) {
             model->options.optimizer.moment_dtype = dtype;
             if (layout) model->layout = *layout;
           }});
      all_.back().same_bits = false;
    };
    if (optimizer.moment_dtype == DType::kF32) {
      add("bf16", "torch.bfloat16", DType::kBF16, std::nullopt);
    }
    std::optional<ChunkLayout> layout = WithMomentsOf8Bits();
    if (layout) {
      add("8 bits", R"("8bit")", DType::kBlocks8, std::move(layout));
    }
  }

  void AddGuesses() {
    const ZeroOptions& options = model_.options;
    // Cores that compute alone have no time for updates meanwhile, which no
    // forecast knows, unless the updates wait for a drive.
    if (options.nvme.empty() || options.guess_updates ||
        model_.trace.step.updates_early ||
        options.optimizer.kind == OptimizerKind::kCustom ||
        options.grad_mode != GradMode::kSeparate) {
      return;
    }
    all_.push_back(
        {"begin updates before the norm is known, in memory that is left over",
         {{"Python", R"(castor.wrap(..., config={"guess_updates": True}))"},
          {"trainer",
           "the option guess_updates, and GuessUpdates() before "
           "the last backward"}},
         Bytes(0),
         [](RunModel* model) { model->options.guess_updates = true; }});
  }

  template <typename Set>
  void AddBudget(std::string_view tier, Bytes now, const Set& set) {
    if (IsUnlimited(now) || now == Bytes(0)) return;
    for (const double factor : {1.125, 1.25, 1.5, 2.0, 3.0}) {
      const Bytes budget =
          RoundUp(Bytes(static_cast<int64_t>(static_cast<double>(now.count()) *
                                             factor)),
                  MiB(1));
      const std::string size = FormatSizeExact(budget);
      all_.push_back(
          {fmt::format("give a rank {} {}, {} more", FormatSize(budget),
                       tier == "host" ? "of host memory" : "of the device",
                       FormatSize(budget - now)),
           {{"Python",
             fmt::format(R"x(castor.wrap(..., {}="{}"))x", tier, size)},
            {"config",
             fmt::format(R"("{}_budget_bytes": {})", tier, budget.count())},
            {"command", fmt::format("--{}-budget {}", tier, size)}},
           budget - now,
           [set, budget](RunModel* model) { set(model, budget); }});
    }
  }

  const RunModel& model_;
  std::vector<Proposal> all_;
};

// Of the links between tiers, the one that moves less by the most.
std::string WhyShorter(const SimulatedStep& before,
                       const SimulatedStep& after) {
  constexpr double kLess = 0.9;
  const auto moved = [](const SimulatedStep& step, bool drive) {
    Bytes sum;
    for (const Tier from : kAllTiers) {
      for (const Tier to : kAllTiers) {
        const bool on_drive = from == Tier::kNvme || to == Tier::kNvme;
        const bool to_device = from == Tier::kHost && to == Tier::kDevice;
        if (drive ? on_drive : to_device) {
          sum += step.traffic.on(from, to).bytes;
        }
      }
    }
    return sum;
  };
  std::string text;
  Bytes most;
  for (const bool drive : {true, false}) {
    const Bytes was = moved(before, drive);
    const Bytes is = moved(after, drive);
    const bool less = static_cast<double>(is.count()) <
                      kLess * static_cast<double>(was.count());
    if (!less || was - is <= most) continue;
    most = was - is;
    text = fmt::format("{} {} a step in place of {}",
                       drive ? "NVMe moves" : "the device is sent",
                       FormatSize(is), FormatSize(was));
  }
  return text;
}

}  // namespace

std::string Headline(const RunStatistics& run) {
  if (run.complete_steps == 0) return "The record has no whole step";
  int64_t steps_ns = run.all_ranks.step_ns;
  int64_t first_ns = 0;
  for (const StepStatistics& step : run.steps) {
    if (step.step == 1) first_ns = step.ns * std::ssize(run.ranks);
  }
  const bool steady = run.complete_steps > 1;
  if (steady) steps_ns -= first_ns;
  const StallStatistics* most = nullptr;
  int64_t most_ns = 0;
  for (const StallStatistics& stall : run.stalls) {
    const int64_t ns = steady ? SteadyNs(stall) : stall.ns;
    if (ns > most_ns) std::tie(most, most_ns) = std::pair(&stall, ns);
  }
  const double share = steps_ns > 0 ? static_cast<double>(most_ns) /
                                          static_cast<double>(steps_ns)
                                    : 0;
  if (most == nullptr || share < kWorthSaying) {
    return fmt::format("Nothing holds the steps up: lanes wait for {} of them",
                       Percent(std::max(share, 0.0)));
  }
  std::string text = fmt::format("{} holds the step up for {:.0f} % of it",
                                 Culprit(*most), 100 * share);
  if (!most->worst.empty()) {
    const ChunkStall& chunk = most->worst.front();
    text += fmt::format(
        "; chunk {}{} is waited for most", chunk.chunk,
        chunk.params.empty() ? "" : ", " + FirstName(chunk.params) + ",");
  }
  return text;
}

Advice AdviceFor(const Result<RunModel>& model, const RunStatistics& run) {
  Advice advice;
  if (!model.ok()) {
    advice.why_none = model.status().message();
    return advice;
  }
  advice.measured_ns = model->measured_ns;
  advice.machine = model->options.machine;
  const Result<SimulatedStep> as_it_was = SimulateModel(*model);
  if (!as_it_was.ok()) {
    advice.why_none = as_it_was.status().message();
    return advice;
  }
  advice.simulated_ns = as_it_was->ns();
  advice.simulated = *as_it_was;
  const double off =
      static_cast<double>(advice.simulated_ns - advice.measured_ns) /
      static_cast<double>(std::max<int64_t>(1, advice.measured_ns));
  if (std::abs(off) > kMostOff) {
    advice.why_none = fmt::format(
        "the simulation of this step takes {}, and the step took {}: it is too "
        "far off to propose anything",
        NsText(advice.simulated_ns), NsText(advice.measured_ns));
    return advice;
  }
  const double worth = kWorthDoing + std::abs(off);
  const Candidates candidates(*model, run);
  std::vector<Proposal> found;
  for (Proposal candidate : candidates.all()) {
    RunModel changed = *model;
    candidate.change(&changed);
    const Result<SimulatedStep> step = SimulateModel(changed);
    if (!step.ok()) continue;  // it does not fit
    const double gain = 1 - static_cast<double>(step->ns()) /
                                static_cast<double>(advice.simulated_ns);
    if (gain < worth) continue;
    candidate.ns = step->ns();
    candidate.why = WhyShorter(*as_it_was, *step);
    found.push_back(std::move(candidate));
  }
  // What takes no memory first where it does as much; of budgets, the least
  // that brings nine tenths of what any brings.
  StableSort(&found,
             [](const Proposal& a, const Proposal& b) { return a.ns < b.ns; });
  enum class Sort : uint8_t { kFree, kMoreMemory, kOtherBits };
  const auto sort_of = [](const Proposal& each) {
    if (!each.same_bits) return Sort::kOtherBits;
    return each.more == Bytes(0) ? Sort::kFree : Sort::kMoreMemory;
  };
  for (const Sort sort : {Sort::kFree, Sort::kMoreMemory, Sort::kOtherBits}) {
    std::optional<int64_t> best;
    const Proposal* chosen = nullptr;
    for (const Proposal& each : found) {
      if (sort_of(each) != sort) continue;
      if (!best) best = each.ns;
      const int64_t enough = *best + (advice.simulated_ns - *best) / 10;
      if (each.ns > enough) continue;
      if (chosen == nullptr || each.more < chosen->more) chosen = &each;
    }
    if (chosen != nullptr) advice.proposals.push_back(*chosen);
  }
  StableSort(&advice.proposals, [](const Proposal& a, const Proposal& b) {
    return std::tuple(!a.same_bits, a.ns) < std::tuple(!b.same_bits, b.ns);
  });
  if (advice.proposals.empty()) {
    advice.why_none = fmt::format(
        "none of {} other budgets, homes and options makes the "
        "simulated step {} shorter ({}, and {} by which the simulation misses "
        "the step)",
        candidates.all().size(), Percent(worth), Percent(kWorthDoing),
        Percent(std::abs(off)));
  }
  return advice;
}

std::string ProposalText(const Advice& advice, const Proposal& proposal) {
  std::string what = proposal.what;
  what.front() = static_cast<char>(std::toupper(what.front()));
  return fmt::format("{}: a step takes {} in place of {}, simulated{}.", what,
                     NsText(proposal.ns), NsText(advice.simulated_ns),
                     proposal.why.empty() ? "" : "; " + proposal.why);
}

JsonValue ForecastJson(const Advice& advice, const RunStatistics& run) {
  JsonValue list = JsonValue::Array();
  if (!advice.simulated) return list;
  const SimulatedStep& step = *advice.simulated;
  const auto add = [&](std::string_view what, std::string_view unit,
                       int64_t foretold, int64_t measured) {
    list.Append(JsonValue::Object({{"what", what},
                                   {"unit", unit},
                                   {"foretold", foretold},
                                   {"measured", measured}}));
  };
  add("takes", "time", advice.simulated_ns, advice.measured_ns);
  int64_t waits = 0;
  for (const StallSum& stall : step.stalls) waits += stall.ns;
  const auto ranks = std::max<int64_t>(1, std::ssize(run.ranks));
  const int64_t steps = std::max<int64_t>(1, std::ssize(run.steps));
  add("waits", "time", waits, run.all_ranks.stalled_ns / ranks / steps);
  for (size_t i = 0; i < run.links.size(); ++i) {
    const LinkId& link = run.links[i].link;
    if (link.kind != RunEventKind::kTransfer) continue;
    add("moves " + LinkName(link), "bytes",
        step.traffic.on(link.from, link.to).bytes.count(),
        run.link_bytes[i].median / ranks);
  }
  return list;
}

JsonValue ProposalsJson(const Advice& advice) {
  JsonValue list = JsonValue::Array();
  for (const Proposal& proposal : advice.proposals) {
    JsonValue lines = JsonValue::Array();
    for (const auto& [where, line] : proposal.lines) {
      JsonValue pair = JsonValue::Array();
      pair.Append(where);
      pair.Append(line);
      lines.Append(std::move(pair));
    }
    list.Append(JsonValue::Object({{"text", ProposalText(advice, proposal)},
                                   {"step_ns", proposal.ns},
                                   {"more_bytes", proposal.more.count()},
                                   {"lines", std::move(lines)}}));
  }
  return list;
}

}  // namespace castor
