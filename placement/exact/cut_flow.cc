// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/cut_flow.h"

#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

#include <algorithm>
#include <cstddef>

#include "chunk/base/check.h"

namespace castor::internal {
namespace {

using Graph = lemon::SmartDigraph;
using Simplex = lemon::NetworkSimplex<Graph, int64_t, int64_t>;

class FlowNetwork {
 public:
  FlowNetwork(const TightCuts& cuts, const std::vector<int64_t>& gains,
              bool loop, int64_t loop_price)
      : cuts_(cuts),
        gains_(gains),
        loop_(loop),
        loop_price_(loop_price),
        upper_(graph_),
        cost_(graph_),
        supply_(graph_) {
    const size_t n = cuts.capacity.size();
    const size_t nodes = loop ? n : n + 1;
    // No slack arc is ever full: then its cost is never below what its ends'
    // potentials say, and the price not negative.
    const int64_t most =
        *std::max_element(cuts.capacity.begin(), cuts.capacity.end()) +
        static_cast<int64_t>(gains.size()) + 1;
    graph_.reserveNode(static_cast<int>(nodes));
    graph_.reserveArc(static_cast<int>(2 * n + gains.size()));
    for (size_t i = 0; i < nodes; ++i) {
      node_.push_back(graph_.addNode());
      const int64_t before =
          i > 0 ? cuts.capacity[i - 1] : (loop ? cuts.capacity[n - 1] : 0);
      const int64_t after = i < n ? cuts.capacity[i] : 0;
      supply_[node_[i]] = after - before;
    }
    for (size_t i = 0; i < n; ++i) {
      AddArc(i, i + 1, most, i + 1 == n ? loop_price : 0);
    }
    for (size_t j = 0; j < gains.size(); ++j) {
      if (!Loops(cuts.intervals[j])) {
        AddArc(Begin(j), End(j), 1,
               (CrossesEnd(cuts.intervals[j]) ? loop_price : 0) - gains[j]);
      }
    }
    // Ways past many cuts at once, which change nothing but how deep the
    // simplex's trees are: several times faster.
    for (size_t step = 4; step < n; step *= 2) {
      for (size_t i = 0; i + step < n; i += step) AddArc(i, i + step, most, 0);
    }
  }

  CutFlow Solve() {
    const size_t n = cuts_.capacity.size();
    CutFlow answer;
    answer.kept.assign(gains_.size(), false);
    // With one node every arc is a loop, and is worth its price or is not.
    if (node_.size() == 1) {
      answer.price = {loop_price_};
    } else {
      Simplex simplex(graph_);
      simplex.upperMap(upper_).costMap(cost_).supplyMap(supply_);
      CASTOR_CHECK_EQ(static_cast<int>(simplex.run()),
                      static_cast<int>(Simplex::OPTIMAL));
      const int64_t dearest = *std::max_element(gains_.begin(), gains_.end());
      for (size_t i = 0; i < n; ++i) {
        const int64_t price = simplex.potential(node_[i]) -
                              simplex.potential(node_[(i + 1) % node_.size()]) +
                              (i + 1 == n ? loop_price_ : 0);
        // Beyond the dearest interval nothing is left to be priced out; where
        // there is no slot at all the simplex may say any such price.
        answer.price.push_back(std::clamp<int64_t>(price, 0, dearest));
      }
      answer.extra = simplex.flow(arcs_[n - 1]);  // unused slots, at first
      size_t arc = n;
      for (size_t j = 0; j < gains_.size(); ++j) {
        if (!Loops(cuts_.intervals[j])) {
          answer.kept[j] = simplex.flow(arcs_[arc++]) > 0;
        }
      }
    }
    for (size_t j = 0; j < gains_.size(); ++j) {
      if (Loops(cuts_.intervals[j])) answer.kept[j] = gains_[j] > loop_price_;
      if (answer.kept[j] && CrossesEnd(cuts_.intervals[j])) ++answer.extra;
    }
    answer.extra -= cuts_.capacity[n - 1];
    return answer;
  }

 private:
  size_t Begin(size_t j) const {
    return static_cast<size_t>(cuts_.intervals[j].begin);
  }
  size_t End(size_t j) const {
    return static_cast<size_t>(cuts_.intervals[j].end);
  }
  void AddArc(size_t from, size_t to, int64_t upper, int64_t cost) {
    const size_t nodes = node_.size();
    // Only where there is one node; there is nothing to solve then.
    if (from % nodes == to % nodes) return;
    const Graph::Arc arc =
        graph_.addArc(node_[from % nodes], node_[to % nodes]);
    upper_[arc] = upper;
    cost_[arc] = cost;
    arcs_.push_back(arc);
  }
  // Lies across the last cut.
  bool CrossesEnd(const CutInterval& interval) const {
    const auto last = static_cast<int32_t>(cuts_.capacity.size());
    return interval.wraps ? interval.begin < last || interval.end == last
                          : interval.end == last;
  }
  // Begins and ends at one node, having gone round.
  bool Loops(const CutInterval& interval) const {
    if (!loop_) return false;
    const auto nodes = static_cast<int32_t>(node_.size());
    return interval.begin % nodes == interval.end % nodes;
  }

  const TightCuts& cuts_;
  const std::vector<int64_t>& gains_;
  const bool loop_;
  const int64_t loop_price_;
  Graph graph_;
  Graph::ArcMap<int64_t> upper_;
  Graph::ArcMap<int64_t> cost_;
  Graph::NodeMap<int64_t> supply_;
  std::vector<Graph::Node> node_;  // node i lies before cut i
  // Of cuts, then of intervals but loops, then the others.
  std::vector<Graph::Arc> arcs_;
};

}  // namespace

CutFlow SolveLine(const TightCuts& cuts, const std::vector<int64_t>& gains) {
  if (gains.empty()) {
    return {{}, std::vector<int64_t>(cuts.moments.size(), 0), 0};
  }
  CutFlow flow = FlowNetwork(cuts, gains, false, 0).Solve();
  CASTOR_CHECK_EQ(flow.extra, 0);
  return flow;
}

CutFlow SolveLoop(const TightCuts& cuts, const std::vector<int64_t>& gains,
                  int64_t loop_price) {
  CASTOR_CHECK_GT(loop_price, 0);
  if (gains.empty()) {
    return {{}, std::vector<int64_t>(cuts.moments.size(), 0), 0};
  }
  return FlowNetwork(cuts, gains, true, loop_price).Solve();
}

}  // namespace castor::internal
