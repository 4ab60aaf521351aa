// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/text/units_text.h"
#include "collectives/engine/zero_engine_impl.h"
#include "collectives/sealing/layout_choice.h"
#include "collectives/sealing/seal_plan.h"
#include "collectives/world/layout_digest.h"
#include "collectives/world/value_hash.h"
#include "collectives/zero_config.h"
#include "placement/machine/tier_model_file.h"
#include "placement/placement_rules.h"
#include "placement/trace/grads_in_place.h"
#include "placement/trace/step_trace.h"

namespace castor {

Status ZeroEngine::Impl::Seal(const SealOptions& declared) {
  if (phase_ != Phase::kOpen) {
    return FailedPrecondition("the engine is sealed already");
  }
  const auto lane = [&](std::string_view name) -> std::unique_ptr<Lane> {
    const std::string of_rank = fmt::format("rank {} {}", comm_->rank(), name);
    if (options_.dry && options_.dry->instant) {
      return std::make_unique<ThreadLane>(of_rank, FailureCallback());
    }
    return std::make_unique<WorkerLane>(of_rank, options_.executor,
                                        FailureCallback());
  };
  comm_lane_ = lane("collectives");
  reduce_lane_ = lane("reductions");
  host_lane_ = lane("host");
  Status status = CheckDevice();
  if (status.ok()) status = comm_->CheckReduces(sharding_.reduce_scope());
  if (status.ok()) status = CheckMicroBatches(declared);
  // A refusal that all ranks know leaves the world to another engine.
  bool all_know = false;
  if (status.ok()) {
    status = AgreeOnInputs(declared);
    if (status.ok()) status = BuildLayout(declared);  // of these inputs alone
    all_know = !status.ok();
  }
  if (status.ok()) headroom_ = HeadroomOfSums(declared);
  if (status.ok()) status = BindHomes();
  if (status.ok()) {
    status = BuildMemory(declared);
    if (status.ok()) status = BuildStore();
    if (status.ok()) status = CheckStep(declared);
    if (status.ok() && declared.step) status = manager_->Adopt(*declared.step);
    // A rank's own refusal has the raises as numbers.
    const Status of_all = AgreeOn(status, 0, "seal");
    if (status.ok()) status = of_all;
    all_know = !status.ok();
  }
  if (status.ok()) status = InitializeShards();
  if (status.ok()) status = WaitForOthers();
  if (!status.ok()) {
    // The others must not wait for this rank.
    if (comm_->world() > 1 && (!all_know || !comm_->Health().ok())) {
      comm_->Abort(status.WithContext(fmt::format("rank {}", comm_->rank())));
    }
    DropMemory();
    phase_ = Phase::kClosed;
    return status;
  }
  phase_ = Phase::kSealed;
  DescribeRank();
  store_->BeginStep(1);
  manager_->BeginStep(1);
  return OkStatus();
}

Status ZeroEngine::Impl::CheckStep(const SealOptions& declared) const {
  if (!declared.step) return OkStatus();
  CASTOR_RETURN_IF_ERROR(
      ValidateStep(*declared.step, layout_->chunks().size())
          .WithContext("the step that is declared at Seal()"));
  if (!grads_in_place() || GradsInPlace(declared.step->accesses)) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "the step that is declared at Seal() is of another gradient mode than {}",
      GradModeName(options_.grad_mode)));
}

Status ZeroEngine::Impl::CheckMicroBatches(const SealOptions& declared) {
  constexpr int64_t kMost = int64_t{1} << 20;
  if (declared.micro_batches >= 1 && declared.micro_batches <= kMost) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "a step cannot be of {} micro-batches: declare 1 to {} at Seal()",
      declared.micro_batches, kMost));
}

Status ZeroEngine::Impl::CheckDevice() const {
  if (options_.device == nullptr || comm_->world() == 1 ||
      !comm_->needs_host_addressable_memory()) {
    return OkStatus();
  }
  const DeviceFacts facts = options_.device->facts();
  if (facts.host_addressable) return OkStatus();
  return Unavailable(fmt::format(
      "the {} ranks exchange chunks in memory that the host addresses, and the "
      "memory of {} is none: train on one rank, or give the engines a "
      "communicator that works in device memory",
      comm_->world(), facts.name));
}

int64_t ZeroEngine::Impl::HashOfParams() const {
  internal::ValueHash hash;
  for (const Param& param : params_) {
    hash.Add(param.spec.name);
    hash.Add(param.size.count());
    hash.Add(param.spec.dtype);
    hash.Add(param.spec.trainable);
    hash.Add(param.group);
  }
  return hash.signed_value();
}

std::vector<std::pair<std::string, int64_t>>
ZeroEngine::Impl::OptionsOfAllRanks(const SealOptions& declared) const {
  ZeroOptions options = options_;
  EngineFiles files;
  std::vector<std::pair<std::string, int64_t>> all =
      SharedOptions(EngineOptions(&options, &files));
  const auto add = [&all](std::string_view name, const auto&... values) {
    const auto row = std::find_if(all.begin(), all.end(), [&](const auto& one) {
      return one.first == name;
    });
    internal::ValueHash hash;
    if (row != all.end()) hash.Add(row->second);
    (hash.Add(values), ...);
    if (row == all.end()) {
      all.emplace_back(name, hash.signed_value());
    } else {
      row->second = hash.signed_value();
    }
  };
  add("values_piece", options_.values_piece.count());
  add("home_limits", options_.home_limits.has_value());
  // What a callback will say is not known yet: BindHomes compares that.
  internal::ValueHash callbacks;
  for (size_t r = 0; r < options_.home_rules.size(); ++r) {
    if (options_.home_rules[r].decide != nullptr) callbacks.Add(r);
  }
  add("home_rules", callbacks.value());
  add("machine",
      options_.machine ? FormatTierModel(*options_.machine) : std::string());
  add("chunk.layout", options_.layout == nullptr
                          ? 0
                          : internal::LayoutDigest(options_.layout->layout));
  internal::ValueHash held;
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
Status ZeroEngine::Impl::AgreeOnInputs(const SealOptions& declared) {
  const SealBudgets own = BudgetsOf(options_, comm_->buffer_bytes());
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
  comm_->AllReduce(*comm_lane_, least.data(), Elements(least.size()),
                   DType::kI64, ReduceOp::kMin, {ChunkId(), -1, "inputs"});
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
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
  least_ = {Bytes(least[0]), Bytes(least[1]), std::nullopt, own.buffers};
  if (least[2] >= 0) least_.nvme = Bytes(least[2]);
  return OkStatus();
}

// A rank that cannot begin is known to all of them before any trains.
Status ZeroEngine::Impl::WaitForOthers() {
  comm_->Barrier(*comm_lane_, {ChunkId(), -1, "sealed"});
  return comm_lane_->Record().Wait();
}

Status ZeroEngine::Impl::BuildLayout(const SealOptions& declared) {
  if (options_.dry && options_.dry->layout != nullptr) {
    layout_.emplace(*options_.dry->layout);
  } else {
    CASTOR_ASSIGN_OR_RETURN(
        ChunkLayout layout,
        ChooseLayout(Specs(), options_, sharding_, least_, declared));
    layout_.emplace(std::move(layout));
  }
  if (comm_->rank() == 0) {
    const std::string wasted =
        WastedByGivenSize(*layout_, Specs(), options_, comm_->world());
    if (!wasted.empty()) options_.log->WarnOnce("wasted chunks", wasted);
  }
  for (size_t p = 0; p < params_.size(); ++p) {
    const ParamPlace& place = layout_->place(ParamId(static_cast<int32_t>(p)));
    if (!place.chunk.valid()) continue;
    params_[p].offset = BytesOf(place.offset, layout_->dtype(place.chunk));
  }
  return OkStatus();
}

std::vector<ParamSpec> ZeroEngine::Impl::Specs() const {
  std::vector<ParamSpec> specs;
  specs.reserve(params_.size());
  for (const Param& param : params_) specs.push_back(param.spec);
  return specs;
}

Status ZeroEngine::Impl::BindHomes() {
  const std::vector<PlacementRule>& rules = options_.home_rules;
  CASTOR_ASSIGN_OR_RETURN(bindings_, BindingsOf(options_, Specs(), *layout_));
  const bool asked = std::any_of(
      rules.begin(), rules.end(),
      [](const PlacementRule& rule) { return rule.decide != nullptr; });
  if (!asked || comm_->world() == 1) return OkStatus();
  internal::ValueHash hash;
  for (const ChunkBindings& chunk : bindings_) {
    for (const StateBinding& binding : chunk) {
      hash.Add(binding.rule);
      hash.Add(binding.tier);
    }
  }
  const int64_t bound = hash.signed_value();
  std::array<int64_t, 2> least = {bound, -bound};
  comm_->AllReduce(*comm_lane_, least.data(), Elements(2), DType::kI64,
                   ReduceOp::kMin, {ChunkId(), -1, "homes"});
  CASTOR_RETURN_IF_ERROR(comm_lane_->Record().Wait());
  if (least[0] == -least[1]) return OkStatus();
  return InvalidArgument(
      "a callback of a placement rule answered differently on different ranks: "
      "it may depend on the parameter and the state only");
}

std::optional<Tier> ZeroEngine::Impl::Home(ParamId param,
                                           StateKind state) const {
  CASTOR_CHECK(phase_ == Phase::kSealed);
  CASTOR_CHECK(param.valid() && param.index() < params_.size());
  const ChunkId chunk = layout_->place(param).chunk;
  if (!chunk.valid()) return std::nullopt;
  const StatePlace& place =
      memory_.states[chunk.index()][static_cast<size_t>(state)];
  if (place.bytes == Bytes(0)) return std::nullopt;
  return place.home;
}

std::string ZeroEngine::Impl::ExplainHome(ChunkId chunk,
                                          StateKind state) const {
  CASTOR_CHECK(phase_ == Phase::kSealed);
  return WhyHome(memory_, options_, bindings_, Specs(), chunk, state);
}

std::vector<std::string> ZeroEngine::Impl::PlacedByRules() const {
  CASTOR_CHECK(phase_ == Phase::kSealed);
  const std::vector<ParamSpec> specs = Specs();
  std::vector<std::string> placed;
  for (size_t c = 0; c < bindings_.size(); ++c) {
    for (size_t k = 0; k < kStateKinds; ++k) {
      const bool exists = memory_.states[c][k].bytes > Bytes(0);
      if (!exists || bindings_[c][k].rule < 0) continue;
      placed.push_back(ExplainPlacement(
          memory_.placement, bindings_, options_.home_rules, specs,
          ChunkId(static_cast<int32_t>(c)), static_cast<StateKind>(k)));
    }
  }
  return placed;
}

}  // namespace castor
