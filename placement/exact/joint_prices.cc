// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/joint_prices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace castor::internal {
namespace {

// What a chunk does over a gap, and so where its shard is behind it.
enum class Choice : uint8_t { kNone, kShard, kWhole, kBoth };

// One kind of place: its price at each moment, what prices before a moment add
// up to, and how many places chunks take.
struct Market {
  std::vector<double> price;
  std::vector<double> before;
  std::vector<double> taken;  // changes, and then their sums

  explicit Market(const std::vector<int64_t>& whole)
      : price(whole.begin(), whole.end()),
        before(whole.size() + 1),
        taken(whole.size() + 1) {}

  void Open() {
    for (size_t t = 0; t < price.size(); ++t) {
      before[t + 1] = before[t] + price[t];
    }
    std::fill(taken.begin(), taken.end(), 0);
  }
  double Paid(int32_t begin, int32_t end) const {
    const double pays =
        before[static_cast<size_t>(end)] - before[static_cast<size_t>(begin)];
    return begin >= end ? pays + before.back() : pays;
  }
  void Take(int32_t begin, int32_t end) {
    ++taken[static_cast<size_t>(begin)];
    --taken[static_cast<size_t>(end)];
    if (begin >= end) ++taken[0];
  }
  void Close() {
    for (size_t t = 1; t < taken.size(); ++t) taken[t] += taken[t - 1];
  }
  // Of moments at which the price can change, what is left of a capacity.
  double Left(size_t t, double capacity) const {
    const double left = capacity - taken[t];
    return price[t] <= 0 && left > 0 ? 0 : left;
  }
};

class Prices {
 public:
  Prices(const JointProblem& problem,
         const std::vector<std::vector<size_t>>& chains, int64_t split,
         const JointPrices& from)
      : problem_(problem),
        chains_(chains),
        split_(static_cast<double>(split)),
        slot_(from.slot),
        shard_(from.shard),
        steps_(problem.gaps.size()) {}

  JointPrices Improve(double gain, int rounds, const JointPrices& from) {
    JointPrices best = from;
    double least = std::numeric_limits<double>::infinity();
    double pace = 1;
    int since = 0;
    for (int round = 0; round < rounds; ++round) {
      const double value = Respond();
      if (value < least * (1 - 1e-12)) {
        least = value;
        since = 0;
        if (round > 0) best = Whole();
      } else if (++since == 8) {
        pace /= 2;
        since = 0;
      }
      if (value <= gain || !Move(pace * (value - gain))) break;
    }
    return best;
  }

 private:
  double CapacityOf(size_t t) const {
    return static_cast<double>(problem_.capacity[t]) - split_;
  }
  double places() const { return static_cast<double>(problem_.parts) * split_; }

  // What the prices bound, by what every chunk then takes.
  double Respond() {
    slot_.Open();
    shard_.Open();
    double value = 0;
    for (size_t t = 0; t < problem_.capacity.size(); ++t) {
      value += slot_.price[t] * CapacityOf(t) + shard_.price[t] * places();
    }
    for (const std::vector<size_t>& chain : chains_) value += BestOf(chain);
    slot_.Close();
    shard_.Close();
    return value;
  }

  double BestOf(const std::vector<size_t>& chain) {
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    const bool open = problem_.gaps[chain.front()].before < 0;
    // By where the shard is at the end: at hand, away.
    std::array<double, 2> value = Pass(chain, {0, kNever});
    if (open) {
      Follow(chain, value[0] >= value[1] ? 0 : 1);
      return std::max(value[0], value[1]);
    }
    const std::array<double, 2> away = Pass(chain, {kNever, 0});
    if (std::max(away[0], away[1]) >= value[0]) {
      Follow(chain, away[0] >= away[1] ? 0 : 1);
      return std::max(away[0], away[1]);
    }
    value = Pass(chain, {0, kNever});
    Follow(chain, 0);
    return value[0];
  }

  std::array<double, 2> Pass(const std::vector<size_t>& chain,
                             std::array<double, 2> value) {
    for (const size_t j : chain) {
      const JointGap& gap = problem_.gaps[j];
      const double place = shard_.Paid(gap.last_need, gap.need);
      const double whole =
          static_cast<double>(gap.gain) - slot_.Paid(gap.idle_since, gap.need);
      const double part = static_cast<double>(gap.shard_gain) - place;
      auto& [hand, away] = steps_[j];
      const double gathered = std::max(value[0], value[1]);
      hand = {Choice::kNone, value[0] >= value[1] ? 0 : 1};
      std::array<double, 2> next = {gathered, gathered + whole};
      away = {Choice::kWhole, hand.second};
      if (value[0] + part > next[0]) {
        next[0] = value[0] + part;
        hand = {Choice::kShard, 0};
      }
      if (value[0] + whole - place > next[0]) {
        next[0] = value[0] + whole - place;
        hand = {Choice::kBoth, 0};
      }
      value = next;
    }
    return value;
  }

  // Takes what the last Pass chose, from its end back.
  void Follow(const std::vector<size_t>& chain, int end) {
    for (size_t i = chain.size(); i-- > 0;) {
      const JointGap& gap = problem_.gaps[chain[i]];
      const auto& [choice, from] =
          end == 0 ? steps_[chain[i]].first : steps_[chain[i]].second;
      if (choice == Choice::kWhole || choice == Choice::kBoth) {
        slot_.Take(gap.idle_since, gap.need);
      }
      if (choice == Choice::kShard || choice == Choice::kBoth) {
        shard_.Take(gap.last_need, gap.need);
      }
      end = from;
    }
  }

  // By a step that would close so much, were the bound straight.
  bool Move(double difference) {
    double norm = 0;
    for (size_t t = 0; t < problem_.capacity.size(); ++t) {
      const double slot = slot_.Left(t, CapacityOf(t));
      const double shard = shard_.Left(t, places());
      norm += slot * slot + shard * shard;
    }
    if (norm == 0) return false;
    const double step = difference / norm;
    for (size_t t = 0; t < problem_.capacity.size(); ++t) {
      const double slot = step * slot_.Left(t, CapacityOf(t));
      const double shard = step * shard_.Left(t, places());
      slot_.price[t] = std::max(0.0, slot_.price[t] - slot);
      shard_.price[t] = std::max(0.0, shard_.price[t] - shard);
    }
    return true;
  }

  JointPrices Whole() const {
    JointPrices whole;
    for (const double price : slot_.price) {
      whole.slot.push_back(std::llround(price));
    }
    for (const double price : shard_.price) {
      whole.shard.push_back(std::llround(price));
    }
    return whole;
  }

  const JointProblem& problem_;
  const std::vector<std::vector<size_t>>& chains_;
  const double split_;
  Market slot_;
  Market shard_;
  // By gap: how the shard came to be at hand behind it, and to be away; and
  // where it was before.
  using Step = std::pair<Choice, int>;
  std::vector<std::pair<Step, Step>> steps_;
};

}  // namespace

JointPrices BetterPrices(const JointProblem& problem,
                         const std::vector<std::vector<size_t>>& chains,
                         int64_t split, int64_t gain, const JointPrices& prices,
                         int rounds) {
  return Prices(problem, chains, split, prices)
      .Improve(static_cast<double>(gain), rounds, prices);
}

}  // namespace castor::internal
