// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/placement/exact/exhaustive_plan.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace castor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// By set of copies, the least cost of holding exactly these now: the low bits
// are gathered copies, the high ones copies of shards.
using Costs = std::vector<double>;

class ClassSearch {
 public:
  ClassSearch(const Trace& trace, const PlanProblem& problem, size_t slot_class,
              int64_t split)
      : trace_(trace),
        problem_(problem),
        slot_class_(slot_class),
        slots_(problem.slots[slot_class] - split),
        places_(split * problem.ShardsPerSlot(slot_class)) {
    std::vector<bool> used(problem.param_class.size(), false);
    for (const Access& access : trace) used[access.chunk.index()] = true;
    bit_.assign(used.size(), -1);
    for (size_t c = 0; c < used.size(); ++c) {
      if (!used[c] ||
          problem.param_class[c] != static_cast<int32_t>(slot_class)) {
        continue;
      }
      bit_[c] = static_cast<int>(chunk_.size());
      if (problem.survives_step[c]) survivors_ |= size_t{1} << bit_[c];
      chunk_.push_back(c);
    }
    whole_ = (size_t{1} << chunk_.size()) - 1;
    if (places_ > 0) survivors_ |= survivors_ << chunk_.size();
  }

  double Cheapest() const {
    double cheapest = kInfinity;
    // Every set of valid copies to begin with.
    for (size_t begin = survivors_;; begin = (begin - 1) & survivors_) {
      cheapest = std::min(cheapest, From(begin));
      if (begin == 0) return cheapest;
    }
  }

 private:
  double From(size_t begin) const {
    if (trace_.empty()) return 0;
    if (std::popcount(begin & whole_) >
            slots_ - problem_.TakenDuring(slot_class_, 0) ||
        std::popcount(begin & ~whole_) > places_) {
      return kInfinity;
    }
    const size_t kinds = places_ > 0 ? 2 : 1;
    Costs costs(size_t{1} << (kinds * chunk_.size()), kInfinity);
    costs[begin] = 0;
    std::vector<int> pins(chunk_.size(), 0);
    int64_t grads = 0;
    for (size_t i = 0; i < trace_.size(); ++i) {
      Serve(trace_[i], &costs, &pins, &grads);
      MakeRoom(slots_ - grads - problem_.TakenAfter(slot_class_, i), pins,
               &costs);
    }
    double cheapest = kInfinity;
    for (size_t set = 0; set < costs.size(); ++set) {
      if ((set & begin) == begin) cheapest = std::min(cheapest, costs[set]);
    }
    return cheapest;
  }

  void Serve(const Access& access, Costs* costs, std::vector<int>* pins,
             int64_t* grads) const {
    const size_t chunk = access.chunk.index();
    const bool here =
        problem_.grad_class[chunk] == static_cast<int32_t>(slot_class_);
    const int bit = bit_[chunk];
    switch (access.kind) {
      case AccessKind::kUse:
        if (bit < 0) return;
        ++(*pins)[static_cast<size_t>(bit)];
        for (size_t set = costs->size(); set-- > 0;) {
          const size_t with = set | size_t{1} << bit;
          if (with == set) continue;
          Gather(chunk, set, with, costs);
          (*costs)[set] = kInfinity;
        }
        return;
      case AccessKind::kUseEnd:
        if (bit >= 0) --(*pins)[static_cast<size_t>(bit)];
        return;
      case AccessKind::kGradOpen:
        *grads += here;
        return;
      case AccessKind::kGradClose:
        *grads -= here;
        return;
    }
  }

  // The shard comes from its copy, or from home, and then to a place where it
  // may stay or to none.
  void Gather(size_t chunk, size_t set, size_t with, Costs* costs) const {
    const auto reach = [&](size_t to, double cost) {
      (*costs)[to] = std::min((*costs)[to], (*costs)[set] + cost);
    };
    const double whole = problem_.fetch_cost[chunk];
    const double shard = problem_.ShardCost(ChunkId(static_cast<int>(chunk)));
    if (places_ == 0 || shard == 0) return reach(with, whole);
    const size_t kept = size_t{1} << (bit_[chunk] + chunk_.size());
    if ((set & kept) != 0) return reach(with, whole - shard);
    reach(with, whole);
    reach(with | kept, whole);
  }

  // Drops what nobody uses, one copy at a time and in every way.
  void MakeRoom(int64_t limit, const std::vector<int>& pins,
                Costs* costs) const {
    for (size_t set = costs->size(); set-- > 0;) {
      if ((*costs)[set] == kInfinity) continue;
      const bool many = std::popcount(set & whole_) > limit;
      if (!many && std::popcount(set & ~whole_) <= places_) continue;
      for (size_t bit = 0; bit < pins.size(); ++bit) {
        const size_t at = many ? bit : bit + pins.size();
        if ((set >> at & 1) == 0 || (many && pins[bit] > 0)) continue;
        double& without = (*costs)[set ^ size_t{1} << at];
        without = std::min(without, (*costs)[set]);
      }
      (*costs)[set] = kInfinity;
    }
  }

  const Trace& trace_;
  const PlanProblem& problem_;
  const size_t slot_class_;
  const int64_t slots_;        // for gathered copies
  const int64_t places_;       // for shards'
  std::vector<int> bit_;       // by chunk; -1: not of this class, or not used
  std::vector<size_t> chunk_;  // by bit
  size_t survivors_ = 0;
  size_t whole_ = 0;  // the bits of gathered copies
};

}  // namespace

double CheapestStep(const Trace& trace, const PlanProblem& problem) {
  double cost = 0;
  for (size_t k = 0; k < problem.slots.size(); ++k) {
    const int64_t splits = problem.ShardsPerSlot(k) > 0 ? problem.slots[k] : 0;
    double cheapest = kInfinity;
    for (int64_t split = 0; split <= splits; ++split) {
      cheapest =
          std::min(cheapest, ClassSearch(trace, problem, k, split).Cheapest());
    }
    cost += cheapest;
  }
  return cost;
}

}  // namespace castor
