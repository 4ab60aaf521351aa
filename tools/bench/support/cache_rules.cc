// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/bench/support/cache_rules.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "chunk/base/check.h"

namespace castor {
namespace {

constexpr int kSettling = 6;  // steps before those that count
constexpr int kCounted = 4;

class Cache {
 public:
  Cache(const Trace& trace, const PlanProblem& problem, CacheRule rule)
      : trace_(trace),
        problem_(problem),
        rule_(rule),
        resident_(problem.param_class.size(), false),
        pins_(resident_.size(), 0),
        last_use_(resident_.size(), -1),
        uses_(resident_.size()),
        copies_(problem.slots.size(), 0),
        grads_(problem.slots.size(), 0) {
    for (size_t i = 0; i < trace.size(); ++i) {
      if (trace[i].kind == AccessKind::kUse) {
        uses_[trace[i].chunk.index()].push_back(static_cast<int64_t>(i));
      }
    }
  }

  // Serves one step; what its fetches cost.
  double Step() {
    double cost = 0;
    for (size_t i = 0; i < trace_.size(); ++i) {
      const size_t chunk = trace_[i].chunk.index();
      const int32_t params = problem_.param_class[chunk];
      const auto grads = static_cast<size_t>(problem_.grad_class[chunk]);
      switch (trace_[i].kind) {
        case AccessKind::kUse:
          if (params == kNoSlotClass) break;
          if (!resident_[chunk]) {
            cost += problem_.fetch_cost[chunk];
            resident_[chunk] = true;
            ++copies_[static_cast<size_t>(params)];
          }
          ++pins_[chunk];
          last_use_[chunk] = ++clock_;
          break;
        case AccessKind::kUseEnd:
          if (params != kNoSlotClass) --pins_[chunk];
          break;
        case AccessKind::kGradOpen:
          ++grads_[grads];
          break;
        case AccessKind::kGradClose:
          --grads_[grads];
          break;
      }
      for (size_t k = 0; k < copies_.size(); ++k) MakeRoom(k, i);
    }
    for (size_t c = 0; c < resident_.size(); ++c) {
      if (resident_[c] &&
          (!problem_.survives_step[c] || rule_ == CacheRule::kGemini)) {
        Drop(c);
      }
    }
    return cost;
  }

 private:
  void MakeRoom(size_t slot_class, size_t moment) {
    while (copies_[slot_class] + grads_[slot_class] +
               problem_.TakenAfter(slot_class, moment) >
           problem_.slots[slot_class]) {
      size_t victim = resident_.size();
      for (size_t c = 0; c < resident_.size(); ++c) {
        if (resident_[c] && pins_[c] == 0 &&
            problem_.param_class[c] == static_cast<int32_t>(slot_class) &&
            (victim == resident_.size() ||
             Rank(c, moment) > Rank(victim, moment))) {
          victim = c;
        }
      }
      CASTOR_CHECK_LT(victim, resident_.size());
      Drop(victim);
    }
  }

  void Drop(size_t chunk) {
    resident_[chunk] = false;
    --copies_[static_cast<size_t>(problem_.param_class[chunk])];
  }

  // The highest goes, of equal ones the first.
  int64_t Rank(size_t chunk, size_t moment) const {
    if (rule_ == CacheRule::kLeastRecentlyUsed) return -last_use_[chunk];
    const std::vector<int64_t>& uses = uses_[chunk];
    const auto next = std::upper_bound(uses.begin(), uses.end(),
                                       static_cast<int64_t>(moment));
    if (next != uses.end()) return *next;
    if (rule_ == CacheRule::kFurthestUse && problem_.survives_step[chunk] &&
        !uses.empty()) {
      return uses.front() + static_cast<int64_t>(trace_.size());
    }
    return std::numeric_limits<int64_t>::max();
  }

  const Trace& trace_;
  const PlanProblem& problem_;
  const CacheRule rule_;
  std::vector<bool> resident_;  // by chunk
  std::vector<int> pins_;
  std::vector<int64_t> last_use_;
  std::vector<std::vector<int64_t>> uses_;
  std::vector<int64_t> copies_;  // by class
  std::vector<int64_t> grads_;
  int64_t clock_ = 0;
};

}  // namespace

double CacheRuleCost(const Trace& trace, const PlanProblem& problem,
                     CacheRule rule) {
  Cache cache(trace, problem, rule);
  for (int step = 0; step < kSettling; ++step) cache.Step();
  double cost = 0;
  for (int step = 0; step < kCounted; ++step) cost += cache.Step();
  return cost / kCounted;
}

}  // namespace castor
