// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/engine/engine_sealing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "collectives/memory/held_moments.h"
#include "collectives/sealing/layout_choice.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/world/layout_digest.h"
#include "collectives/world/value_hash.h"
#include "collectives/zero_config.h"
#include "placement/machine/tier_model_file.h"
#include "placement/placement_rules.h"
#include "placement/trace/grads_in_place.h"
#include "placement/trace/step_trace.h"

namespace castor::internal {

Status EngineSealing::CheckMicroBatches(const SealOptions& declared) {
  constexpr int64_t kMost = int64_t{1} << 20;
  if (declared.micro_batches >= 1 && declared.micro_batches <= kMost) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "a step cannot be of {} micro-batches: declare 1 to {} at Seal()",
      declared.micro_batches, kMost));
}

Status EngineSealing::CheckDevice() const {
  if (model_.options.device == nullptr || model_.comm->world() == 1 ||
      !model_.comm->needs_host_addressable_memory()) {
    return OkStatus();
  }
  const DeviceFacts facts = model_.options.device->facts();
  if (facts.host_addressable) return OkStatus();
  return Unavailable(fmt::format(
      "the {} ranks exchange chunks in memory that the host addresses, and the "
      "memory of {} is none: train on one rank, or give the engines a "
      "communicator that works in device memory",
      model_.comm->world(), facts.name));
}

int64_t EngineSealing::HashOfParams() const {
  ValueHash hash;
  for (const EngineParam& param : model_.params) {
    hash.Add(param.spec.name);
    hash.Add(param.size.count());
    hash.Add(param.spec.dtype);
    hash.Add(param.spec.trainable);
    hash.Add(param.group);
  }
  return hash.signed_value();
}

std::vector<std::pair<std::string, int64_t>> EngineSealing::OptionsOfAllRanks(
    const SealOptions& declared) const {
  ZeroOptions options = model_.options;
  EngineFiles files;
  std::vector<std::pair<std::string, int64_t>> all =
      SharedOptions(EngineOptions(&options, &files));
  const auto add = [&all](std::string_view name, const auto&... values) {
    const auto row = std::find_if(all.begin(), all.end(), [&](const auto& one) {
      return one.first == name;
    });
    ValueHash hash;
    if (row != all.end()) hash.Add(row->second);
    (hash.Add(values), ...);
    if (row == all.end()) {
      all.emplace_back(name, hash.signed_value());
    } else {
      row->second = hash.signed_value();
    }
  };
  add("values_piece", model_.options.values_piece.count());
  add("home_limits", model_.options.home_limits.has_value());
  // What a callback will say is not known yet: BindHomes compares that.
  ValueHash callbacks;
  for (size_t r = 0; r < model_.options.home_rules.size(); ++r) {
    if (model_.options.home_rules[r].decide != nullptr) callbacks.Add(r);
  }
  add("home_rules", callbacks.value());
  add("machine", model_.options.machine
                     ? FormatTierModel(*model_.options.machine)
                     : std::string());
  add("chunk.layout", model_.options.layout == nullptr
                          ? 0
                          : LayoutDigest(model_.options.layout->layout));
  ValueHash held;
  for (const HeldTogether& moment : declared.held) {
    for (const std::vector<ParamId>* ids : {&moment.params, &moment.grads}) {
      held.Add(ids->size());
      for (ParamId id : *ids) held.Add(id.value());
    }
  }
  if (declared.step) {
    for (const Access& access : declared.step->accesses) {
      held.Add(access.kind);
      held.Add(access.chunk.value());
    }
  }
  add("what is declared at Seal()", held.value(),
      declared.largest_lease.count(), declared.micro_batches, declared.grow,
      declared.estimate);
  return all;
}

// Ranks must have registered the same parameters and chosen the same options;
// their memory is cut alike, so the least budget of any rank serves for all.
Status EngineSealing::AgreeOnInputs(const SealOptions& declared) {
  const SealBudgets own =
      BudgetsOf(model_.options, model_.comm->buffer_bytes());
  std::vector<int64_t> least = {own.device.count(), own.host.count(),
                                own.nvme.value_or(Bytes(-1)).count()};
  const size_t budgets = least.size();
  // A value is the same on all ranks where its minimum is its maximum.
  const auto compare = [&least](int64_t hash) {
    least.push_back(hash);
    least.push_back(-hash);
  };
  compare(HashOfParams());
  const std::vector<std::pair<std::string, int64_t>> options =
      OptionsOfAllRanks(declared);
  for (const auto& [name, hash] : options) compare(hash);
  model_.comm->AllReduce(*lanes_.comm, least.data(), Elements(least.size()),
                         DType::kI64, ReduceOp::kMin,
                         {ChunkId(), -1, "inputs"});
  CASTOR_RETURN_IF_ERROR(lanes_.comm->Record().Wait());
  const auto differs = [&](size_t value) {
    return least[budgets + 2 * value] != -least[budgets + 2 * value + 1];
  };
  if (differs(0)) {
    return InvalidArgument(
        "the ranks registered different parameters: every rank must register "
        "the same ones in the same order");
  }
  std::vector<std::string_view> different;
  for (size_t o = 0; o < options.size(); ++o) {
    if (differs(1 + o)) different.push_back(options[o].first);
  }
  if (!different.empty()) {
    return InvalidArgument(fmt::format(
        "the ranks chose different options: {}. Every rank must choose the "
        "same; budgets may differ",
        fmt::join(different, ", ")));
  }
  model_.least = {Bytes(least[0]), Bytes(least[1]), std::nullopt, own.buffers};
  if (least[2] >= 0) model_.least.nvme = Bytes(least[2]);
  return OkStatus();
}

Status EngineSealing::BuildLayout(const SealOptions& declared) {
  if (model_.options.dry && model_.options.dry->layout != nullptr) {
    model_.layout.emplace(*model_.options.dry->layout);
  } else {
    CASTOR_ASSIGN_OR_RETURN(
        ChunkLayout layout,
        ChooseLayout(model_.Specs(), model_.options, model_.sharding,
                     model_.least, declared));
    model_.layout.emplace(std::move(layout));
  }
  if (model_.comm->rank() == 0) {
    const std::string wasted = WastedByGivenSize(
        *model_.layout, model_.Specs(), model_.options, model_.comm->world());
    if (!wasted.empty()) model_.options.log->WarnOnce("wasted chunks", wasted);
  }
  for (size_t p = 0; p < model_.params.size(); ++p) {
    const ParamPlace& place =
        model_.layout->place(ParamId(static_cast<int32_t>(p)));
    if (!place.chunk.valid()) continue;
    model_.params[p].offset =
        BytesOf(place.offset, model_.layout->dtype(place.chunk));
  }
  return OkStatus();
}

// Sums in fp32 and bf16 never overflow. With a parameter in fp16 the gradients
// of all types are divided, so that one norm and one factor serve the model.
void EngineSealing::SetHeadroom(const SealOptions& declared) {
  model_.headroom = 0;
  bool half = false;
  for (size_t c = 0; c < model_.chunks(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    half |= model_.Trainable(chunk) && model_.GradDType(chunk) == DType::kF16;
  }
  if (!half) return;
  // What the trainer adds up in one place is the trainer's own sum.
  const int64_t sums = model_.options.accumulation == AccumulationOrder::kEach
                           ? declared.micro_batches
                           : 1;
  model_.headroom = static_cast<int>(
      std::bit_width(static_cast<uint64_t>(model_.comm->world() * sums - 1)));
}

void EngineSealing::ChooseGrads(const SealOptions& declared) {
  const ZeroOptions& options = model_.options;
  model_.sharding.borrows_grads = false;
  const bool known = !declared.held.empty() && !declared.estimate;
  if (!options.borrow_grads || options.recorder != nullptr || options.dry ||
      model_.comm->world() > 1 || options.grad_mode != GradMode::kSeparate ||
      declared.micro_batches > 1 || (declared.grow && !known)) {
    return;
  }
  Sharding borrowing = model_.sharding;
  borrowing.borrows_grads = true;
  SealBudgets beside = model_.least;
  for (const EngineParam& param : model_.params) {
    if (!param.spec.trainable) continue;
    beside.device -= BytesOf(param.size, param.spec.dtype);
  }
  if (beside.device <= Bytes(0)) return;
  const Result<MemoryPlan> plan = MemoryOf(*model_.layout, borrowing, options,
                                           beside, model_.bindings, declared);
  if (!plan.ok()) return;
  for (size_t c = 0; c < model_.chunks(); ++c) {
    const ChunkId chunk(static_cast<int32_t>(c));
    for (int k = 0; k < kStateKinds; ++k) {
      if (borrowing.exists(static_cast<StateKind>(k), model_.GroupOf(chunk)) &&
          plan->placement.homes[c][static_cast<size_t>(k)] != Tier::kDevice) {
        return;
      }
    }
  }
  model_.sharding = borrowing;
  model_.least = beside;
}

Status EngineSealing::BindHomes() {
  const std::vector<PlacementRule>& rules = model_.options.home_rules;
  CASTOR_ASSIGN_OR_RETURN(
      model_.bindings,
      BindingsOf(model_.options, model_.Specs(), *model_.layout));
  const bool asked = std::any_of(
      rules.begin(), rules.end(),
      [](const PlacementRule& rule) { return rule.decide != nullptr; });
  if (!asked || model_.comm->world() == 1) return OkStatus();
  ValueHash hash;
  for (const ChunkBindings& chunk : model_.bindings) {
    for (const StateBinding& binding : chunk) {
      hash.Add(binding.rule);
      hash.Add(binding.tier);
    }
  }
  const int64_t bound = hash.signed_value();
  std::array<int64_t, 2> least = {bound, -bound};
  model_.comm->AllReduce(*lanes_.comm, least.data(), Elements(2), DType::kI64,
                         ReduceOp::kMin, {ChunkId(), -1, "homes"});
  CASTOR_RETURN_IF_ERROR(lanes_.comm->Record().Wait());
  if (least[0] == -least[1]) return OkStatus();
  return InvalidArgument(
      "a callback of a placement rule answered differently on different ranks: "
      "it may depend on the parameter and the state only");
}

Status EngineSealing::CheckStep(const SealOptions& declared) const {
  if (!declared.step) return OkStatus();
  CASTOR_RETURN_IF_ERROR(
      ValidateStep(*declared.step, model_.chunks())
          .WithContext("the step that is declared at Seal()"));
  if (!model_.grads_in_place() || GradsInPlace(declared.step->accesses)) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "the step that is declared at Seal() is of another gradient mode than {}",
      GradModeName(model_.options.grad_mode)));
}

// A rank that cannot begin is known to all of them before any trains.
Status EngineSealing::WaitForOthers() {
  model_.comm->Barrier(*lanes_.comm, {ChunkId(), -1, "sealed"});
  return lanes_.comm->Record().Wait();
}

// Ranks that keep whole parameters may have made different accesses.
Status EngineSealing::DeclareLastStep(const std::optional<StepTrace>& last,
                                      SealOptions* declared) {
  if (!declared->held.empty()) return OkStatus();
  std::vector<HeldTogether> held;
  if (last) held = HeldMomentsOf(*model_.layout, last->accesses);
  ValueHash hash;
  for (const HeldTogether& moment : held) {
    for (const std::vector<ParamId>* ids : {&moment.params, &moment.grads}) {
      hash.Add(ids->size());
      for (const ParamId id : *ids) hash.Add(id.value());
    }
  }
  const int64_t own = hash.signed_value();
  std::array<int64_t, 2> least = {own, -own};
  CASTOR_RETURN_IF_ERROR(words_.LeastOf(least, "what is held"));
  if (least[0] == -least[1]) declared->held = std::move(held);
  return OkStatus();
}

}  // namespace castor::internal
