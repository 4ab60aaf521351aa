// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "chunk/text/budget_text.h"
#include "chunk/text/units_text.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/plan/plan_outcome.h"
#include "tools/commands/side_by_side.h"

namespace castor {
namespace {

constexpr int64_t kMostRanks = 1 << 16;
constexpr int kMostOfAHost = 16;  // ranks, a GPU each
constexpr Bytes kLeastChunk = MiB(1);
// Budgets are raised by whole ones.
constexpr Bytes kBudgetStep = MiB(1);

// The sizes that were searched between, written out: another budget alone must
// not change the layout.
PlanFlags WithChunkBounds(const PlanOutcome& outcome) {
  PlanFlags bound = outcome.request.flags;
  if (bound.engine.chunk_size || !bound.files.layout.empty()) return bound;
  bound.min = outcome.request.options.min_chunk;
  bound.max = outcome.request.options.max_chunk;
  return bound;
}

// A budget of one tier, for people to read and write.
Bytes RaisedBudget(const std::optional<Bytes>& now, Bytes by) {
  return RoundUp(now.value_or(Bytes(0)) + by, kBudgetStep);
}

// A list that says what a step does leaves no choice.
bool MayRecompute(const PlanSubject& subject, const PlanFlags& flags) {
  return flags.seq && !flags.step.recompute &&
         subject.step_source() == StepSource::kDerived;
}

// Plans changes of flags and keeps what fits. The first failure sticks, and
// nothing is planned after it.
class Finder {
 public:
  Finder(const PlanSubject& subject, const PlanOutcome& outcome)
      : subject_(subject), flags_(outcome.request.flags), outcome_(outcome) {}

  // Whether it fits.
  bool Try(std::string what, const PlanFlags& flags) {
    std::optional<PlanOutcome> outcome = Planned(flags);
    if (!outcome || !outcome->fits.ok()) return false;
    found_.push_back({std::move(what), FiguresOf(*outcome)});
    return true;
  }

  // By whole steps, for people to read and write. `first`: what else is
  // changed, in `outcome` already.
  void RaiseBudgets(const PlanOutcome& outcome, std::string_view first) {
    const BudgetRaises raises = outcome.raises;
    const PlanFlags& now_given = outcome.request.flags;
    const auto raise = [&](std::string_view name, std::string_view of_what,
                           const std::optional<Bytes>& by,
                           std::optional<Bytes> PlanFlags::*flag) {
      if (!by) return;
      const Bytes now = (now_given.*flag).value_or(Bytes(0));
      PlanFlags raised = now_given;
      raised.*flag = RaisedBudget(now, *by);
      const std::string more = FormatSize(*(raised.*flag) - now);
      Try(now == Bytes(0)
              ? fmt::format("{}give {} of {}", first, more, of_what)
              : fmt::format("{}raise the {} by {}", first, name, more),
          raised);
    };
    if (outcome.request.flags.device_budget) {
      raise("device budget", "device memory", raises.device,
            &PlanFlags::device_budget);
    }
    raise("host budget", "host memory", raises.host, &PlanFlags::host_budget);
    raise("NVMe size", "NVMe", raises.nvme, &PlanFlags::nvme);
  }

  // Where the device holds not even what a step holds at once, no other tier
  // helps alone: as little of the device as works, with what that leaves to
  // host memory, and to host memory and NVMe.
  void SpreadOverTiers() {
    const BudgetRaises alone = outcome_.raises;
    if (!flags_.device_budget || alone.host || alone.nvme) return;
    PlanFlags host = flags_;
    host.host_budget = kNoDeviceLimit;
    const BudgetRaises device = RaisesOf(host);
    if (!device.device) return;
    host.host_budget = flags_.host_budget;
    host.device_budget = RaisedBudget(flags_.device_budget, *device.device);
    PlanFlags nvme = host;
    if (const BudgetRaises rest = RaisesOf(host); rest.host) {
      host.host_budget = RaisedBudget(flags_.host_budget, *rest.host);
      Try(fmt::format("{} of device and {} of host memory",
                      FormatSize(*host.device_budget),
                      FormatSize(*host.host_budget)),
          host);
    }
    nvme.nvme = kNoDeviceLimit;
    if (const BudgetRaises staging = RaisesOf(nvme); staging.host) {
      nvme.host_budget = RaisedBudget(flags_.host_budget, *staging.host);
    }
    nvme.nvme = flags_.nvme;
    const BudgetRaises drives = RaisesOf(nvme);
    if (!drives.nvme) return;
    nvme.nvme = RaisedBudget(flags_.nvme, *drives.nvme);
    Try(fmt::format("{} of device, {} of host memory, {} of NVMe",
                    FormatSize(*nvme.device_budget),
                    FormatSize(nvme.host_budget.value_or(Bytes(0))),
                    FormatSize(*nvme.nvme)),
        nvme);
  }

  void ShareMore() {
    PlanFlags changed = flags_;
    while (changed.engine.stage < 3 && flags_.world > 1) {
      ++changed.engine.stage;
      if (Try(fmt::format("stage {}: share more of it", changed.engine.stage),
              changed)) {
        break;
      }
    }
    changed = flags_;
    if (flags_.engine.shard_group > 0) {
      changed.engine.shard_group = 0;
      Try("one shard group of all ranks", changed);
    }
    if (!free_layout()) return;
    MoreRanks(/*hosts=*/false);
    MoreRanks(/*hosts=*/true);
  }

  // Ranks share the memory and drives of this host, or more hosts come with
  // more ranks.
  void MoreRanks(bool hosts) {
    for (int times = 2; flags_.world * times <= kMostRanks; times *= 2) {
      PlanFlags changed = flags_;
      changed.world *= times;
      if (!hosts) {
        changed.ranks_per_host *= times;
        for (std::optional<Bytes>* budget :
             {&changed.host_budget, &changed.nvme}) {
          if (!*budget || IsUnlimited(**budget)) continue;
          **budget = RoundDown(**budget / times, kBudgetStep);
        }
        if (changed.ranks_per_host > kMostOfAHost) return;
      }
      if (Try(fmt::format("train on {} ranks{}", changed.world,
                          hosts ? ", with more hosts like this one"
                                : ", which share the host's memory"),
              changed)) {
        return;
      }
    }
  }

  void ShrinkChunks() {
    if (!free_layout()) return;
    for (Bytes size = RoundDown(outcome_.largest_chunk() / 2, kLeastChunk);
         size >= kLeastChunk; size = RoundDown(size / 2, kLeastChunk)) {
      if (TryChunk(fmt::format("chunks of {}", FormatSize(size)), size)) break;
    }
  }

  void ShrinkActivations() {
    if (!flags_.seq) return;
    PlanFlags changed = flags_;
    for (int64_t batch = flags_.batch.value_or(1) / 2; batch >= 1; batch /= 2) {
      changed.batch = batch;
      if (Try("micro-batches of " + Plural(batch, "sequence"), changed)) break;
    }
  }

  void LossInChunks() {
    if (!flags_.seq || flags_.loss != "plain") return;
    PlanFlags changed = flags_;
    changed.loss = "chunked";
    Try("a loss that takes some tokens at a time", changed);
  }

  // Alone where that suffices, else with the budgets that do.
  void Recompute() {
    PlanFlags changed = flags_;
    if (!MayRecompute(subject_, changed)) return;
    changed.step.recompute = true;
    if (Try("compute activations again", changed)) return;
    const std::optional<PlanOutcome> outcome = Planned(changed);
    if (outcome) RaiseBudgets(*outcome, "compute again, ");
  }

  // As little as suffices.
  void ShrinkMoments() {
    const OptimizerOptions& optimizer = flags_.engine.optimizer;
    if (MomentsOf(optimizer) == 0 || optimizer.kind == OptimizerKind::kCustom) {
      return;
    }
    PlanFlags changed = flags_;
    DType& dtype = changed.engine.optimizer.moment_dtype;
    if (dtype == DType::kF32) {
      dtype = DType::kBF16;
      if (Try("moments in bf16", changed)) return;
    }
    if (dtype == DType::kBF16) {
      dtype = DType::kBlocks8;
      Try("moments in 8 bits", changed);
    }
  }

  void OtherStages() {
    PlanFlags changed = WithChunkBounds(outcome_);
    // With one micro-batch after the other, 1 and 2 keep the same.
    for (const int stage : {0, 1, 3}) {
      if (stage == flags_.engine.stage || flags_.world == 1) continue;
      changed.engine.stage = stage;
      Try(fmt::format("--stage {}", stage), changed);
    }
  }

  void OtherChunks() {
    if (!free_layout()) return;
    const Bytes largest = outcome_.largest_chunk();
    for (const Bytes near : {largest / 2, largest * 2}) {
      const Bytes size = std::max(RoundDown(near, KiB(4)), KiB(4));
      TryChunk(fmt::format("--chunk {}", FormatSizeExact(size)), size);
    }
  }

  Result<PlanVariants> Take() {
    CASTOR_RETURN_IF_ERROR(status_);
    return std::move(found_);
  }

 private:
  // A layout and a trace are for their own chunks and ranks.
  bool free_layout() const {
    return flags_.files.layout.empty() && flags_.trace.empty();
  }

  bool TryChunk(std::string what, Bytes size) {
    PlanFlags changed = flags_;
    changed.min = changed.max = std::nullopt;
    changed.engine.chunk_size = size;
    return Try(std::move(what), changed);
  }

  // Empty where there is no such plan: a chunk too small for so many ranks, for
  // instance.
  std::optional<PlanOutcome> Planned(const PlanFlags& flags) {
    if (!status_.ok()) return std::nullopt;
    Result<PlanOutcome> outcome =
        MakePlan(subject_, flags, /*steady_only=*/true);
    if (outcome.ok()) return *std::move(outcome);
    if (outcome.status().code() != ErrorCode::kInvalidArgument) {
      status_ = outcome.status();
    }
    return std::nullopt;
  }

  // By how much `flags` fall short, none of their budgets where they do not.
  BudgetRaises RaisesOf(const PlanFlags& flags) {
    const std::optional<PlanOutcome> outcome = Planned(flags);
    if (!outcome || outcome->fits.ok()) return BudgetRaises();
    return outcome->raises;
  }

  const PlanSubject& subject_;
  const PlanFlags& flags_;
  const PlanOutcome& outcome_;
  PlanVariants found_;
  Status status_;
};

bool Better(const PlanFigures& a, const PlanFigures& b) {
  const std::optional<double> seconds = a.step_seconds;
  const std::optional<double> others = b.step_seconds;
  if (seconds && others) return *seconds < *others;
  if (seconds || others) return seconds.has_value();
  return a.moved < b.moved;
}

// Plans beside the first one take so much memory at most: a variant may have
// twice the chunks.
size_t PlansAtOnce(const PlanOutcome& outcome) {
  constexpr Bytes kMost = MiB(128);
  constexpr Bytes kOfChunk = KiB(7);
  const auto chunks = std::max<int64_t>(1, std::ssize(outcome.layout.chunks()));
  return 1 + static_cast<size_t>(kMost / (kOfChunk * chunks));
}

// A search of its own for each, side by side: a plan of a large model takes
// seconds. What they find is in their order, and so is the first failure.
using Search = std::function<void(Finder&)>;

Result<PlanVariants> FindAll(const PlanSubject& subject,
                             const PlanOutcome& outcome,
                             const std::vector<Search>& searches) {
  std::vector<Result<PlanVariants>> found(searches.size(), PlanVariants());
  SideBySide(
      searches.size(),
      [&](size_t i) {
        Finder finder(subject, outcome);
        searches[i](finder);
        found[i] = finder.Take();
      },
      PlansAtOnce(outcome));
  PlanVariants all;
  for (Result<PlanVariants>& some : found) {
    CASTOR_RETURN_IF_ERROR(some.status());
    std::move(some->begin(), some->end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

Result<PlanVariants> ChangesThatFit(const PlanSubject& subject,
                                    const PlanOutcome& outcome) {
  return FindAll(
      subject, outcome,
      {[&](Finder& finder) { finder.RaiseBudgets(outcome, ""); },
       &Finder::SpreadOverTiers, &Finder::ShareMore, &Finder::ShrinkChunks,
       &Finder::ShrinkActivations, &Finder::LossInChunks, &Finder::Recompute,
       &Finder::ShrinkMoments});
}

Result<PlanVariants> Alternatives(const PlanSubject& subject,
                                  const PlanOutcome& outcome) {
  const PlanFlags& flags = outcome.request.flags;
  std::vector<Search> searches = {&Finder::OtherStages, &Finder::OtherChunks};
  const auto add = [&](std::string what, const PlanFlags& changed) {
    searches.emplace_back([what = std::move(what), changed](Finder& finder) {
      finder.Try(what, changed);
    });
  };
  PlanFlags changed = flags;
  changed.engine.policy = flags.engine.policy == PlanPolicy::kPlanned
                              ? PlanPolicy::kAuto
                              : PlanPolicy::kPlanned;
  add(fmt::format("--policy {}", PlanPolicyName(changed.engine.policy)),
      changed);
  changed = flags;
  if (!flags.engine.home_limits && flags.host_budget) {
    changed.engine.home_limits = {
        {{std::string(kAllStates), Tier::kDevice, 0.0}}};
    add("--limit all@device=0%", changed);
  }
  changed = flags;
  if (MayRecompute(subject, flags)) {
    changed.step.recompute = true;
    add("--recompute", changed);
  }
  changed = flags;
  if (flags.nvme && !flags.update_in_backward) {
    changed.update_in_backward = true;
    add("--update-in-backward", changed);
  }
  CASTOR_ASSIGN_OR_RETURN(PlanVariants found,
                          FindAll(subject, outcome, searches));
  // Each after its equals.
  PlanVariants sorted;
  for (PlanVariant& variant : found) {
    sorted.insert(
        std::upper_bound(sorted.begin(), sorted.end(), variant,
                         [](const PlanVariant& a, const PlanVariant& b) {
                           return Better(a.figures, b.figures);
                         }),
        std::move(variant));
  }
  return sorted;
}

Result<PlanVariants> OneMoreGiB(const PlanSubject& subject,
                                const PlanOutcome& outcome) {
  const PlanFlags& flags = outcome.request.flags;
  if (!flags.device_budget) return PlanVariants();
  PlanFlags device = WithChunkBounds(outcome);
  device.device_budget = *flags.device_budget + GiB(1);
  PlanFlags host = WithChunkBounds(outcome);
  host.host_budget = flags.host_budget.value_or(Bytes(0)) + GiB(1);
  return FindAll(subject, outcome,
                 {[&](Finder& finder) {
                    finder.Try("one more GiB on the device", device);
                  },
                  [&](Finder& finder) {
                    finder.Try("one more GiB of host memory", host);
                  }});
}

Result<std::vector<BudgetPoint>> BudgetGrid(const PlanSubject& subject,
                                            const PlanOutcome& outcome) {
  constexpr double kFactors[] = {0.25, 0.375, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4};
  // In fp32 with two moments, whatever is asked for: it is a scale.
  constexpr int64_t kStateBytes = 16;
  std::vector<BudgetPoint> points;
  const PlanFlags bound = WithChunkBounds(outcome);
  if (!bound.device_budget) return points;
  Bytes host = bound.host_budget.value_or(Bytes(0));
  if (host == Bytes(0)) {
    host = Bytes(subject.elements.count() * kStateBytes / bound.world);
  }
  const auto scaled = [](Bytes budget, double factor) {
    if (factor == 1) return budget;
    return RoundUp(Bytes(static_cast<int64_t>(
                       static_cast<double>(budget.count()) * factor)),
                   kBudgetStep);
  };
  std::vector<PlanFlags> asked;
  for (const double by_device : kFactors) {
    for (const double by_host : kFactors) {
      PlanFlags& flags = asked.emplace_back(bound);
      flags.device_budget = scaled(*bound.device_budget, by_device);
      flags.host_budget = scaled(host, by_host);
      points.push_back({*flags.device_budget, *flags.host_budget});
    }
  }
  std::vector<Status> statuses(asked.size());
  SideBySide(
      asked.size(),
      [&](size_t i) {
        const Result<PlanOutcome> planned =
            MakePlan(subject, asked[i], /*steady_only=*/true);
        if (planned.ok() && planned->fits.ok()) {
          points[i].fits = true;
          points[i].moved = planned->moved();
          points[i].step_seconds = planned->step_seconds();
        } else if (!planned.ok() &&
                   planned.status().code() != ErrorCode::kInvalidArgument) {
          statuses[i] = planned.status();
        }
      },
      PlansAtOnce(outcome));
  for (const Status& status : statuses) CASTOR_RETURN_IF_ERROR(status);
  return points;
}

}  // namespace castor
