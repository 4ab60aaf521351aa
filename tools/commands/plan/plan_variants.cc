// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/plan/plan_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/budget_raises.h"
#include "tools/cli/size_text.h"
#include "tools/commands/plan/plan_request.h"

namespace castor {
namespace {

constexpr int64_t kMostRanks = 1 << 16;
constexpr Bytes kLeastChunk = MiB(1);
// Budgets are raised by whole ones.
constexpr Bytes kBudgetStep = MiB(1);

// The sizes that were searched between, written out: another budget alone must
// not change the layout.
PlanFlags WithChunkBounds(const PlanFlags& flags, const PlanOutcome& outcome) {
  PlanFlags bound = flags;
  if (flags.engine.chunk_size || !flags.files.layout.empty()) return bound;
  bound.min = outcome.request.options.min_chunk;
  bound.max = outcome.request.options.max_chunk;
  return bound;
}

class Finder {
 public:
  Finder(const PlanSubject& subject, const PlanFlags& flags)
      : subject_(subject), flags_(flags) {}

  // Plans `flags` and keeps them where they fit; true then.
  Result<bool> Try(std::string what, const PlanFlags& flags) {
    CASTOR_ASSIGN_OR_RETURN(const PlanRequest request,
                            CheckPlanFlags(flags, subject_));
    Result<PlanOutcome> outcome = MakePlan(subject_, request);
    // A chunk too small for so many ranks, for instance.
    if (outcome.status().code() == ErrorCode::kInvalidArgument) return false;
    CASTOR_RETURN_IF_ERROR(outcome.status());
    if (!outcome->fits.ok()) return false;
    found_.push_back({std::move(what), flags, *std::move(outcome)});
    return true;
  }

  const PlanFlags& flags() const { return flags_; }
  std::vector<PlanVariant> Take() { return std::move(found_); }

 private:
  const PlanSubject& subject_;
  const PlanFlags& flags_;
  std::vector<PlanVariant> found_;
};

// A budget of one tier, for people to read and write.
Bytes RaisedBudget(const std::optional<Bytes>& now, Bytes by) {
  return RoundUp(now.value_or(Bytes(0)) + by, kBudgetStep);
}

// By whole steps, for people to read and write. `first`: what else is changed,
// in `flags` and `outcome` already.
Status RaiseBudgets(const PlanSubject& subject, const PlanFlags& flags,
                    const PlanOutcome& outcome, std::string_view first,
                    Finder& finder) {
  const BudgetRaises raises = RaisesFor(subject, outcome);
  const PlanFlags bound = WithChunkBounds(flags, outcome);
  const auto raise = [&](std::string_view name, std::string_view of_what,
                         const std::optional<Bytes>& by,
                         std::optional<Bytes> PlanFlags::*flag) -> Status {
    if (!by) return OkStatus();
    const Bytes now = (bound.*flag).value_or(Bytes(0));
    PlanFlags raised = bound;
    raised.*flag = RaisedBudget(now, *by);
    const Bytes more = *(raised.*flag) - now;
    return finder
        .Try(now == Bytes(0) ? fmt::format("{}give {} of {}", first,
                                           FormatSize(more), of_what)
                             : fmt::format("{}raise the {} by {}", first, name,
                                           FormatSize(more)),
             raised)
        .status();
  };
  if (outcome.request.device_limited) {
    CASTOR_RETURN_IF_ERROR(raise("device budget", "device memory",
                                 raises.device, &PlanFlags::device_budget));
  }
  CASTOR_RETURN_IF_ERROR(raise("host budget", "host memory", raises.host,
                               &PlanFlags::host_budget));
  return raise("NVMe size", "NVMe", raises.nvme, &PlanFlags::nvme);
}

// By how much `flags` fall short, none of their budgets where they do not.
Result<BudgetRaises> RaisesOfFlags(const PlanSubject& subject,
                                   const PlanFlags& flags) {
  CASTOR_ASSIGN_OR_RETURN(const PlanRequest request,
                          CheckPlanFlags(flags, subject));
  CASTOR_ASSIGN_OR_RETURN(const PlanOutcome outcome,
                          MakePlan(subject, request));
  return outcome.fits.ok() ? BudgetRaises() : RaisesFor(subject, outcome);
}

// Where the device holds not even what a step holds at once, no other tier
// helps alone: as little of the device as works, with what that leaves to host
// memory, and to host memory and NVMe.
Status SpreadOverTiers(const PlanSubject& subject, const PlanFlags& flags,
                       const PlanOutcome& outcome, Finder& finder) {
  const BudgetRaises alone = RaisesFor(subject, outcome);
  if (!outcome.request.device_limited || alone.host || alone.nvme) {
    return OkStatus();
  }
  const PlanFlags bound = WithChunkBounds(flags, outcome);
  PlanFlags all = bound;
  all.host_budget = kNoDeviceLimit;
  CASTOR_ASSIGN_OR_RETURN(const BudgetRaises device,
                          RaisesOfFlags(subject, all));
  if (!device.device) return OkStatus();
  PlanFlags host = bound;
  host.device_budget = RaisedBudget(flags.device_budget, *device.device);
  CASTOR_ASSIGN_OR_RETURN(const BudgetRaises rest,
                          RaisesOfFlags(subject, host));
  PlanFlags nvme = host;
  if (rest.host) {
    host.host_budget = RaisedBudget(flags.host_budget, *rest.host);
    CASTOR_RETURN_IF_ERROR(
        finder
            .Try(fmt::format("{} of device and {} of host memory",
                             FormatSize(*host.device_budget),
                             FormatSize(*host.host_budget)),
                 host)
            .status());
  }
  nvme.nvme = kNoDeviceLimit;
  CASTOR_ASSIGN_OR_RETURN(const BudgetRaises staging,
                          RaisesOfFlags(subject, nvme));
  if (staging.host) {
    nvme.host_budget = RaisedBudget(flags.host_budget, *staging.host);
  }
  nvme.nvme = flags.nvme;
  CASTOR_ASSIGN_OR_RETURN(const BudgetRaises drives,
                          RaisesOfFlags(subject, nvme));
  if (!drives.nvme) return OkStatus();
  nvme.nvme = RaisedBudget(flags.nvme, *drives.nvme);
  return finder
      .Try(fmt::format("{} of device, {} of host memory, {} of NVMe",
                       FormatSize(*nvme.device_budget),
                       FormatSize(nvme.host_budget.value_or(Bytes(0))),
                       FormatSize(*nvme.nvme)),
           nvme)
      .status();
}

Status ShareMore(const PlanOutcome& outcome, Finder& finder) {
  const PlanFlags& flags = finder.flags();
  for (int stage = flags.engine.stage + 1; stage <= 3 && flags.world > 1;
       ++stage) {
    PlanFlags changed = flags;
    changed.engine.stage = stage;
    CASTOR_ASSIGN_OR_RETURN(
        const bool fits,
        finder.Try(fmt::format("stage {}: share more of it", stage), changed));
    if (fits) break;
  }
  if (flags.engine.shard_group > 0) {
    PlanFlags changed = flags;
    changed.engine.shard_group = 0;
    CASTOR_RETURN_IF_ERROR(
        finder.Try("one shard group of all ranks", changed).status());
  }
  // A layout and a trace are for their own number of ranks.
  if (!flags.files.layout.empty() || !flags.trace.empty()) return OkStatus();
  PlanFlags changed = WithChunkBounds(flags, outcome);
  while (changed.world * 2 <= kMostRanks) {
    changed.world *= 2;
    CASTOR_ASSIGN_OR_RETURN(
        const bool fits,
        finder.Try(fmt::format("train on {} ranks", changed.world), changed));
    if (fits) break;
  }
  return OkStatus();
}

Status ShrinkChunks(const PlanOutcome& outcome, Finder& finder) {
  const PlanFlags& flags = finder.flags();
  if (!flags.files.layout.empty() || !flags.trace.empty()) return OkStatus();
  Bytes largest;
  for (const GroupInfo& group : outcome.layout.groups()) {
    largest = std::max(largest, BytesOf(group.chunk_size, group.dtype));
  }
  for (Bytes size = RoundDown(largest / 2, kLeastChunk); size >= kLeastChunk;
       size = RoundDown(size / 2, kLeastChunk)) {
    PlanFlags changed = flags;
    changed.min = changed.max = std::nullopt;
    changed.engine.chunk_size = size;
    CASTOR_ASSIGN_OR_RETURN(
        const bool fits,
        finder.Try(fmt::format("chunks of {}", FormatSize(size)), changed));
    if (fits) break;
  }
  return OkStatus();
}

Status ShrinkActivations(Finder& finder) {
  const PlanFlags& flags = finder.flags();
  if (!flags.seq) return OkStatus();
  for (int64_t batch = flags.batch.value_or(1) / 2; batch >= 1; batch /= 2) {
    PlanFlags changed = flags;
    changed.batch = batch;
    CASTOR_ASSIGN_OR_RETURN(
        const bool fits,
        finder.Try(fmt::format("micro-batches of {} sequence{}", batch,
                               batch == 1 ? "" : "s"),
                   changed));
    if (fits) break;
  }
  return OkStatus();
}

// Alone where that suffices, else with the budgets that do.
Status Recompute(const PlanSubject& subject, Finder& finder) {
  PlanFlags changed = finder.flags();
  if (!changed.seq || changed.recompute) return OkStatus();
  changed.recompute = true;
  CASTOR_ASSIGN_OR_RETURN(const bool fits,
                          finder.Try("compute activations again", changed));
  if (fits) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(const PlanRequest request,
                          CheckPlanFlags(changed, subject));
  CASTOR_ASSIGN_OR_RETURN(const PlanOutcome outcome,
                          MakePlan(subject, request));
  return RaiseBudgets(subject, changed, outcome, "compute again, ", finder);
}

Status ShrinkMoments(const PlanOutcome& outcome, Finder& finder) {
  const OptimizerOptions& optimizer = outcome.request.options.optimizer;
  if (MomentsOf(optimizer) == 0 || optimizer.moment_dtype != DType::kF32) {
    return OkStatus();
  }
  PlanFlags changed = finder.flags();
  changed.engine.optimizer.moment_dtype = DType::kBF16;
  return finder.Try("moments in bf16", changed).status();
}

bool Better(const PlanOutcome& a, const PlanOutcome& b) {
  const std::optional<double> seconds = a.step_seconds();
  const std::optional<double> others = b.step_seconds();
  if (seconds && others) return *seconds < *others;
  if (seconds || others) return seconds.has_value();
  return a.moved() < b.moved();
}

}  // namespace

Result<std::vector<PlanVariant>> ChangesThatFit(const PlanSubject& subject,
                                                const PlanFlags& flags,
                                                const PlanOutcome& outcome) {
  Finder finder(subject, flags);
  CASTOR_RETURN_IF_ERROR(RaiseBudgets(subject, flags, outcome, "", finder));
  CASTOR_RETURN_IF_ERROR(SpreadOverTiers(subject, flags, outcome, finder));
  CASTOR_RETURN_IF_ERROR(ShareMore(outcome, finder));
  CASTOR_RETURN_IF_ERROR(ShrinkChunks(outcome, finder));
  CASTOR_RETURN_IF_ERROR(ShrinkActivations(finder));
  CASTOR_RETURN_IF_ERROR(Recompute(subject, finder));
  CASTOR_RETURN_IF_ERROR(ShrinkMoments(outcome, finder));
  return finder.Take();
}

Result<std::vector<PlanVariant>> Alternatives(const PlanSubject& subject,
                                              const PlanFlags& flags,
                                              const PlanOutcome& outcome) {
  Finder finder(subject, flags);
  const auto attempt = [&finder](std::string what, PlanFlags changed) {
    return finder.Try(std::move(what), changed).status();
  };
  for (int stage = 0; stage <= 3 && flags.world > 1; ++stage) {
    // With one micro-batch after the other, 1 and 2 keep the same.
    if (stage == flags.engine.stage || stage == 2) continue;
    PlanFlags changed = WithChunkBounds(flags, outcome);
    changed.engine.stage = stage;
    CASTOR_RETURN_IF_ERROR(attempt(fmt::format("--stage {}", stage), changed));
  }
  if (flags.files.layout.empty() && flags.trace.empty()) {
    Bytes largest;
    for (const GroupInfo& group : outcome.layout.groups()) {
      largest = std::max(largest, BytesOf(group.chunk_size, group.dtype));
    }
    for (const Bytes size : {largest / 2, largest * 2}) {
      PlanFlags changed = flags;
      changed.min = changed.max = std::nullopt;
      changed.engine.chunk_size = std::max(RoundDown(size, KiB(4)), KiB(4));
      CASTOR_RETURN_IF_ERROR(
          attempt(fmt::format("--chunk {}",
                              FormatSizeExact(*changed.engine.chunk_size)),
                  changed));
    }
  }
  PlanFlags changed = flags;
  changed.engine.policy = flags.engine.policy == PlanPolicy::kPlanned
                              ? PlanPolicy::kAuto
                              : PlanPolicy::kPlanned;
  CASTOR_RETURN_IF_ERROR(
      attempt(fmt::format("--policy {}", PlanPolicyName(changed.engine.policy)),
              changed));
  if (!flags.engine.home_limits && flags.host_budget) {
    changed = flags;
    for (StateLimits& limits : changed.engine.home_limits.emplace()) {
      limits.device = 0.0;
    }
    CASTOR_RETURN_IF_ERROR(attempt("--limit all@device=0%", changed));
  }
  if (flags.seq && !flags.recompute) {
    changed = flags;
    changed.recompute = true;
    CASTOR_RETURN_IF_ERROR(attempt("--recompute", changed));
  }
  std::vector<PlanVariant> found = finder.Take();
  // Insertion keeps those that are equal in the order above.
  for (size_t i = 1; i < found.size(); ++i) {
    for (size_t j = i; j > 0 && Better(found[j].outcome, found[j - 1].outcome);
         --j) {
      std::swap(found[j], found[j - 1]);
    }
  }
  return found;
}

Result<std::vector<PlanVariant>> OneMoreGiB(const PlanSubject& subject,
                                            const PlanFlags& flags,
                                            const PlanOutcome& outcome) {
  Finder finder(subject, flags);
  PlanFlags more = WithChunkBounds(flags, outcome);
  if (flags.device_budget) {
    more.device_budget = *flags.device_budget + GiB(1);
    CASTOR_RETURN_IF_ERROR(
        finder.Try("one more GiB on the device", more).status());
    more.device_budget = flags.device_budget;
    more.host_budget = flags.host_budget.value_or(Bytes(0)) + GiB(1);
    CASTOR_RETURN_IF_ERROR(
        finder.Try("one more GiB of host memory", more).status());
  }
  return finder.Take();
}

}  // namespace castor
