// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/search/pareto_front.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace castor {
namespace {

// The least value at any rank up to a given one, under insertions (a Fenwick
// tree).
class PrefixMinimum {
 public:
  explicit PrefixMinimum(size_t ranks)
      : tree_(ranks + 1, std::numeric_limits<int64_t>::max()) {}

  void Insert(size_t rank, int64_t value) {
    for (size_t i = rank + 1; i < tree_.size(); i += i & -i) {
      tree_[i] = std::min(tree_[i], value);
    }
  }

  int64_t UpTo(size_t rank) const {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t i = rank + 1; i > 0; i -= i & -i) {
      least = std::min(least, tree_[i]);
    }
    return least;
  }

 private:
  std::vector<int64_t> tree_;
};

}  // namespace

std::vector<size_t> ParetoFront(std::span<const ParetoPoint> points) {
  std::vector<int64_t> thirds;
  thirds.reserve(points.size());
  for (const ParetoPoint& point : points) thirds.push_back(point[2]);
  std::sort(thirds.begin(), thirds.end());

  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&points](size_t a, size_t b) {
    return points[a] != points[b] ? points[a] < points[b] : a < b;
  });

  // Whatever dominates a point, or equals it and comes first, precedes it in
  // this order, with at most its second and third cost.
  std::vector<size_t> front;
  PrefixMinimum seconds(points.size());
  for (const size_t i : order) {
    const auto found =
        std::lower_bound(thirds.begin(), thirds.end(), points[i][2]);
    const size_t rank = static_cast<size_t>(found - thirds.begin());
    if (seconds.UpTo(rank) <= points[i][1]) continue;
    seconds.Insert(rank, points[i][1]);
    front.push_back(i);
  }
  std::sort(front.begin(), front.end());
  return front;
}

}  // namespace castor
