// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "chunk/base/check.h"
#include "collectives/internal/value_hash.h"
#include "collectives/seal_plan.h"
#include "collectives/zero_engine_impl.h"
#include "placement/placement_rules.h"
#include "placement/static_policy.h"

namespace castor {
namespace {

using internal::ValueHash;

void AddLimit(const std::optional<StateLimit>& limit, ValueHash* hash) {
  hash->Add(limit ? limit->index() : std::variant_npos);
  if (!limit) return;
  if (const Bytes* bytes = std::get_if<Bytes>(&*limit)) {
    hash->Add(bytes->count());
  } else {
    hash->Add(std::get<double>(*limit));
  }
}

}  // namespace

std::vector<ParamSpec> ZeroEngine::Impl::Specs() const {
  std::vector<ParamSpec> specs;
  specs.reserve(params_.size());
  for (const Param& param : params_) specs.push_back(param.spec);
  return specs;
}

// What a callback will say is not known yet: BindHomes compares that.
uint64_t ZeroEngine::Impl::HashOfHomes() const {
  ValueHash hash;
  if (options_.home_limits) {
    for (const StateLimits& of_state : *options_.home_limits) {
      for (const auto* limit :
           {&of_state.device, &of_state.host, &of_state.nvme}) {
        AddLimit(*limit, &hash);
      }
    }
  }
  for (const PlacementRule& rule : options_.home_rules) {
    hash.Add(rule.glob);
    for (int64_t number :
         {rule.dtype ? static_cast<int64_t>(*rule.dtype) : int64_t{-1},
          rule.least.count(), rule.most.value_or(Bytes(-1)).count(),
          rule.state ? static_cast<int64_t>(*rule.state) : int64_t{-1},
          static_cast<int64_t>(rule.tier), int64_t{rule.decide != nullptr}}) {
      hash.Add(number);
    }
  }
  return hash.value();
}

Status ZeroEngine::Impl::BindHomes() {
  const std::vector<PlacementRule>& rules = options_.home_rules;
  CASTOR_ASSIGN_OR_RETURN(bindings_, BindingsOf(options_, Specs(), *layout_));
  const bool asked = std::any_of(
      rules.begin(), rules.end(),
      [](const PlacementRule& rule) { return rule.decide != nullptr; });
  if (!asked || comm_->world() == 1) return OkStatus();
  ValueHash hash;
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
