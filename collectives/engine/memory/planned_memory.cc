// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/memory/planned_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/sealing/seal_plan.h"
#include "offload/nvme/nvme_option.h"

namespace castor::internal {

Status PlannedMemory::Make(const SealOptions& declared, bool spare_places) {
  widened_ = Bytes(0);
  counted_piece_ = Elements(0);
  CASTOR_ASSIGN_OR_RETURN(plan_, PlanAll(declared, spare_places));
  if (model_->options.dry && model_->options.dry->instant) WidenStaging();
  return OkStatus();
}

Result<MemoryPlan> PlannedMemory::PlanAll(const SealOptions& declared,
                                          bool spare_places) const {
  const auto made = [&](ZeroOptions options, Bytes device,
                        const SealOptions& held) {
    options.guess_updates = options.guess_updates && spare_places;
    SealBudgets budgets = model_->least;
    budgets.device = device;
    return MemoryOf(*model_->layout, model_->sharding, options, budgets,
                    model_->bindings, held);
  };
  const bool known = !declared.held.empty() && !declared.estimate;
  if (!declared.grow || known) {
    return made(model_->options, model_->least.device, declared);
  }
  ZeroOptions options = model_->options;
  options.prefetch.depth = 0;
  options.keep_copies = false;
  const SealOptions held =
      FirstStepOf(*model_->layout, model_->Specs(), declared);
  // In little more than the least budget that serves it, which leaves the rest
  // to slots.
  Result<MemoryPlan> least = made(options, model_->least.device, held);
  Bytes serves = model_->least.device;
  Bytes fails;
  while (least.ok() && serves - fails > model_->least.device / 64) {
    const Bytes half = fails + (serves - fails) / 2;
    Result<MemoryPlan> in_half = made(options, half, held);
    (in_half.ok() ? serves : fails) = half;
    if (in_half.ok()) least = std::move(in_half);
  }
  return least;
}

void PlannedMemory::Warn() const {
  Log& log = *model_->options.log;
  if (!plan_.unknown_links.empty()) {
    log.WarnOnce(
        "unknown links",
        fmt::format("the machine says nothing of {}, which fetches pass: they "
                    "are weighed by the links they cross, not by their time",
                    plan_.unknown_links));
  }
  const PlanProblem& problem = plan_.problem;
  if (problem.prefetch.mode == PrefetchMode::kDeadlines &&
      (problem.fetch_ns.empty() || problem.step_compute_ns == 0)) {
    log.WarnOnce(
        "no deadlines",
        fmt::format("nothing is fetched ahead by deadlines, but {} chunks "
                    "before their use: {}",
                    problem.prefetch.depth, LackedByDeadlines(plan_)));
  }
}

RankPoolsOptions PlannedMemory::PoolsOptions() const {
  const ZeroOptions& options = model_->options;
  Communicator* const comm = model_->comm;
  RankPoolsOptions asked;
  asked.device = options.device;
  asked.executor = options.executor;
  asked.workers = &model_->workers();
  asked.make_device_slab = options.make_device_slab;
  asked.device_budget = options.device_budget - comm->buffer_bytes();
  asked.host_budget = options.host_budget + widened_;
  // As much as is needed: a parked device may come here too.
  asked.nvme_budget = plan_.home_bytes[TierIndex(Tier::kNvme)] +
                      plan_.spare_bytes[TierIndex(Tier::kNvme)];
  for (const SlotClass& shape : plan_.device_classes) {
    asked.nvme_budget += RoundUp(shape.slot_bytes, KiB(4)) * shape.slots;
  }
  if (!options.nvme.empty()) {
    asked.nvme_budget = NvmeLimit(options.nvme).value_or(asked.nvme_budget);
  }
  asked.device_classes = plan_.device_classes;
  asked.host_classes = plan_.host_classes;
  asked.nvme_classes = plan_.nvme_classes;
  asked.host_spare = plan_.spare_bytes[TierIndex(Tier::kHost)];
  asked.nvme_drives = options.nvme;
  asked.make_nvme_queue = options.make_nvme_queue;
  asked.nvme_checksums = options.nvme_checksums;
  asked.dry = options.dry.has_value();
  if (options.dry) asked.nvme_joined = options.dry->nvme_piece;
  asked.log = options.log;
  asked.poison = options.poison;
  asked.nvme_class = plan_.staging_class;
  asked.device_memory = {
      .made = [comm](void* data,
                     Bytes size) { comm->RegisterMemory(data, size); },
      .going = [comm](void* data) { comm->UnregisterMemory(data); }};
  return asked;
}

void PlannedMemory::WidenStaging() {
  if (plan_.piece == Elements(0) || plan_.staging_class < 0) return;
  counted_piece_ = std::exchange(plan_.piece, Elements(0));
  Bytes largest;
  for (const auto& states : plan_.states) {
    for (const StatePlace& place : states) {
      largest = std::max(largest, RoundUp(place.bytes, KiB(4)));
    }
  }
  SlotClass& staging =
      plan_.host_classes[static_cast<size_t>(plan_.staging_class)];
  if (staging.slot_bytes >= largest) return;
  widened_ = (largest - staging.slot_bytes) * staging.slots;
  staging.slot_bytes = largest;
}

int64_t PlannedMemory::UpdateSlots() const {
  // The calls of a program come in one order.
  if (model_->options.optimizer.kind == OptimizerKind::kCustom) return 0;
  int64_t most = 0;  // that one update takes
  bool nvme = false;
  for (const auto& states : plan_.states) {
    const auto on = [&](Tier tier) {
      return std::count_if(states.begin(), states.end(),
                           [&](const StatePlace& at) {
                             return at.bytes > Bytes(0) && at.home == tier;
                           });
    };
    // A chunk that is whole on the device is updated there.
    if (on(Tier::kHost) + on(Tier::kNvme) == 0) continue;
    most = std::max(most, on(Tier::kDevice) + on(Tier::kNvme));
    nvme |= on(Tier::kNvme) > 0;
  }
  const int64_t work = plan_.staging_slots - plan_.fetch_slots;
  // The rest serves gradients on their way home. On a drive one update is read
  // and one written while a third is made; with less, both ways would wait.
  const int64_t own = work - (nvme ? std::max<int64_t>(2, work / 4) : 1);
  return own >= (nvme ? 3 * most : most) ? own : 0;
}

}  // namespace castor::internal
